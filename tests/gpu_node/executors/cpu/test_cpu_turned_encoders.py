"""Encoders with rotary positions on the CPU device: on each level of the kernels; bits hang on nothing else."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec, ModelTask
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import engine_of, label_logits, means, write_pooling
from tests.gpu_node.turned_encoders import TURNED, as_gte_writes_it, save_turned, texts

SIMILARITY = 0.998
"""Least cosine beside float32: of bfloat16 through tiny models, whose large random weights make an error grow."""
CLOSE = 0.15
"""Of logits, likewise."""


def on_cpu(path: Path, asked: list[list[int]], task: ModelTask = "embed", level: str = "") -> torch.Tensor:
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, level=level)) as executor:
        return embedded(engine_of(executor, path, task), asked)


@pytest.mark.parametrize("name", TURNED)
def test_on_the_cpu_device_on_each_level(name: str, tmp_path: Path, level: str) -> None:
    model = save_turned(name, tmp_path)
    found = on_cpu(tmp_path, texts(), level=level)
    assert float(torch.cosine_similarity(found, means(model, texts())).min()) > SIMILARITY


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_on_the_cpu_device_bits_hang_on_nothing_else(name: str, pooling: str, tmp_path: Path) -> None:
    save_turned(name, tmp_path)
    write_pooling(tmp_path, **{pooling: True})
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1, optimize=False)) as executor:
        engine = engine_of(executor, tmp_path)
        plain = torch.cat([embedded(engine, [text]) for text in texts()])
    with closing(CpuExecutor(EngineOptions(**OPTIONS | {"block_size": 16}), 2)) as executor:
        assert torch.equal(embedded(engine_of(executor, tmp_path, block_size=16), texts()), plain)


@pytest.mark.parametrize("name", TURNED)
def test_int8_weights_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    save_turned(name, tmp_path)
    options, found = EngineOptions(**OPTIONS), []
    with closing(CpuExecutor(options, 2)) as cpu:
        for executor in (cpu, ReferenceExecutor(options)):
            engine = Engine(executor, options)
            engine.load_model(ModelSpec(name="tiny", source=str(tmp_path), task="embed", weights="int8"))
            found.append(embedded(engine, texts()))
    assert float(torch.cosine_similarity(found[0], found[1]).min()) > SIMILARITY


@pytest.mark.parametrize("name", TURNED)
def test_logits_of_labels(name: str, tmp_path: Path) -> None:
    model = save_turned(name, tmp_path, is_classifier=True, num_labels=3)
    assert float((on_cpu(tmp_path, texts(), "classify") - label_logits(model, texts())).abs().max()) < CLOSE


def test_labels_by_the_mean_of_states(tmp_path: Path) -> None:
    model = save_turned("modernbert", tmp_path, is_classifier=True, classifier_pooling="mean")
    assert float((on_cpu(tmp_path, texts(), "score") - label_logits(model, texts())).abs().max()) < CLOSE


def test_a_base_that_is_stretched(tmp_path: Path) -> None:
    save_turned("gte", tmp_path)
    as_gte_writes_it(tmp_path, rope_theta=20_000, rope_scaling={"type": "ntk", "factor": 8.0})
    expected = embedded(engine_of(ReferenceExecutor(EngineOptions(**OPTIONS)), tmp_path), texts())
    assert float(torch.cosine_similarity(on_cpu(tmp_path, texts()), expected).min()) > SIMILARITY
