"""Nomic's encoders in GGUF files, in an engine of each kind of executor: vectors are those of `transformers`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from shared.files.model_sizes import read_is_encoder, read_sizes
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import LONGEST, check_close, engine_of, means
from tests.gpu_node.engine.test_encoders import reference, texts
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.nomic_model import nomic_tensors, save_nomic, write_nomic


def test_embeddings_are_means_of_what_transformers_computes(tmp_path: Path) -> None:
    model = save_nomic(tmp_path)
    check_close(embedded(reference(tmp_path / "m.gguf"), texts(9)), means(model, texts(9)))


def test_on_the_cpu_device_bits_hang_on_nothing_else(tmp_path: Path) -> None:
    model = save_nomic(tmp_path)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1, optimize=False)) as executor:
        engine = engine_of(executor, tmp_path / "m.gguf")
        plain = torch.cat([embedded(engine, [text]) for text in texts(9)])
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2)) as executor:
        found = embedded(engine_of(executor, tmp_path / "m.gguf"), texts(9))
    assert torch.equal(found, plain)
    assert float(torch.cosine_similarity(found, means(model, texts(9))).min()) > 0.999


def test_int8_weights_are_those_of_the_reference(tmp_path: Path) -> None:
    save_nomic(tmp_path)
    options, found = EngineOptions(**OPTIONS), []
    with closing(CpuExecutor(options, 2)) as cpu:
        for executor in (cpu, ReferenceExecutor(options)):
            engine = Engine(executor, options)
            source = str(tmp_path / "m.gguf")
            engine.load_model(ModelSpec(name="tiny", source=source, task="embed", weights="int8"))
            found.append(embedded(engine, texts(5)))
    assert float(torch.cosine_similarity(found[0], found[1]).min()) > 0.999


def test_on_a_cuda_device(tmp_path: Path) -> None:
    model = save_nomic(tmp_path)
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=torch.float32)
    check_close(embedded(engine_of(executor, tmp_path / "m.gguf"), texts(4)), means(model, texts(4)))


def test_sizes_are_found_alike_at_the_gateway(tmp_path: Path) -> None:
    save_nomic(tmp_path)
    path = tmp_path / "m.gguf"
    assert read_is_encoder(path)
    assert read_sizes(path).context_length == open_checkpoint(path).config.max_length == LONGEST + 1


def test_what_cannot_be_served_is_named(tmp_path: Path) -> None:
    tensors = nomic_tensors(save_nomic(tmp_path))
    with pytest.raises(ModelFileError, match=r"scaled rotary embeddings of type 'yarn' are not supported"):
        reference(write_nomic(tmp_path, tensors, rope__scaling__type="yarn"))
    del tensors["blk.0.ffn_gate.weight"]
    with pytest.raises(ModelFileError, match=r"missing tensors: blk\.0\.ffn_gate\.weight; tensors not known: none"):
        reference(write_nomic(tmp_path, tensors))
    (tmp_path / "config.json").write_text('{"model_type": "nomic-bert"}')
    with pytest.raises(ModelFileError, match=r"model_type 'nomic-bert' is not supported"):
        reference(tmp_path)
