"""A ModernBERT in a GGUF file gives what its directory gives, and has its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from gateway.models.models import load_models
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelTask
from shared.files.model_file import ModelFileError
from shared.files.model_sizes import read_is_encoder, read_sizes
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import engine_of
from tests.gpu_node.gguf_encoders import tokenizer_keys
from tests.gpu_node.turned_encoders import LONGEST, save_turned, texts

TEXTS = ("The loom weaves requests, naïve!", "", "a [SEP] b", "   of hot  models", "cafe\u0301 日本語 12 🧵")


def write_modern(path: Path, **metadata: Any) -> Path:
    """``m.gguf`` of the directory ``path``, as llama.cpp's converter writes it; None leaves a key out."""
    config = open_checkpoint(path).config
    assert config.rope is not None
    assert config.window_rope is not None
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MODERN_BERT, config.num_layers)
    tensors = {}
    for full_name, values in load_file(path / "model.safetensors").items():
        name = full_name.removeprefix("model.").replace("classifier.", "classifier.out_proj.")
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, f"{full_name} has no name in GGUF"
        tensors[found] = values
    fields: dict[str, Any] = {
        "attention__causal": False,
        "attention__sliding_window": 12,
        "attention__layer_norm_epsilon": config.norm_epsilon,
        "rope__freq_base": config.rope.theta,
        "rope__freq_base_swa": config.window_rope.theta,
        "rope__scaling__type": "none",
    }
    arch = {f"modern-bert.{key.replace('__', '.')}": one for key, one in (fields | metadata).items()}
    sizes = {"block_count": config.num_layers, "context_length": config.context_length}
    sizes |= {"embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size}
    sizes |= {"attention.head_count": config.num_heads}
    keys = arch | {f"modern-bert.{key}": one for key, one in sizes.items()} | tokenizer_keys(path)
    writer = gguf.GGUFWriter(path / "m.gguf", "modern-bert")
    for key, value in keys.items():
        match value:
            case None:
                continue
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)
            case _:
                writer.add_string(key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path / "m.gguf"


def reference(path: Path, task: ModelTask = "embed") -> torch.Tensor:
    return embedded(engine_of(ReferenceExecutor(EngineOptions(**OPTIONS)), path, task), texts())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modern")
    save_turned("modernbert", path)
    return path


def test_embeddings_are_those_of_its_directory(folder: Path) -> None:
    file = write_modern(folder)
    ours, theirs = open_checkpoint(file).config, open_checkpoint(folder).config
    assert (ours.windows, ours.rope, ours.window_rope) == (theirs.windows, theirs.rope, theirs.window_rope)
    assert torch.equal(reference(file), reference(folder))
    assert read_is_encoder(file)
    assert read_sizes(file).context_length == LONGEST + 1


def test_tokens_are_those_of_the_library(folder: Path) -> None:
    fields = {"models": [{"name": "m", "source": str(write_modern(folder)), "task": "embed"}]}
    model = load_models(ClusterConfig.model_validate(fields))["m"]
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        assert model.tokenizer.encode_whole(text) == raw.encode(text).ids


def test_what_cannot_be_served_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"modern-bert\.rope\.freq_base_swa is missing; convert the model anew"):
        reference(write_modern(folder, rope__freq_base_swa=None))
    with pytest.raises(ModelFileError, match=r"it has no tensor cls\.output\.weight"):
        reference(write_modern(folder), "score")
    save_turned("modernbert", tmp_path, is_classifier=True)
    with pytest.raises(ModelFileError, match=r"of which states a ModernBERT makes its labels; serve the directory"):
        reference(write_modern(tmp_path), "score")
