"""Gateways and nodes find the same sizes in the same files, and so the same longest request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_node.models.checkpoint import open_checkpoint
from shared.files.model_file import ModelFileError
from shared.files.model_length import KvSizes
from shared.files.model_sizes import read_context_length, read_is_encoder, read_sizes
from tests.gateway.encoder_tiny import ENCODERS, write_encoder
from tests.gateway.tiny import write_model
from tests.gpu_node.encoder_model import LONGEST, save_encoder
from tests.gpu_node.gguf_encoders import write_encoder_gguf
from tests.gpu_node.gguf_files import write_gguf
from tests.gpu_node.models.test_families_gguf import NAMES
from tests.gpu_node.models.test_families_models import FAMILIES, save, save_config


def check(path: Path) -> None:
    config, sizes = open_checkpoint(path).config, read_sizes(path)
    assert sizes.context_length == read_context_length(path) == config.max_length
    assert sizes.is_encoder is read_is_encoder(path) is config.is_encoder
    assert sizes.kv == KvSizes(config.num_layers, config.num_kv_heads, config.head_dim)


@pytest.mark.parametrize("family", FAMILIES)
def test_of_a_directory(family: str, tmp_path: Path) -> None:
    save_config(family, tmp_path)
    check(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("head_dim", "num_key_value_heads") if family == "llama" else ():
        config.pop(key, None)
        (tmp_path / "config.json").write_text(json.dumps(config))
        check(tmp_path)


@pytest.mark.parametrize("style", ENCODERS)
def test_of_an_encoder(style: str, tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m", style)
    check(path)
    assert read_context_length(path) == 62 + 1


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta"])
def test_of_an_encoder_in_a_gguf_file(name: str, tmp_path: Path) -> None:
    save_encoder(name, tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    check(path)
    assert read_context_length(path) == LONGEST + 1


def test_of_an_encoder_without_positions(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m", "roberta", max_position_embeddings=2, pad_token_id=1)
    readers: list[Callable[[Path], object]] = [read_context_length, open_checkpoint]
    for read in readers:
        with pytest.raises(ModelFileError, match="max_position_embeddings 2 leaves no position for a token"):
            read(path)


@pytest.mark.parametrize("family", NAMES)
def test_of_a_gguf_file(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    check(write_gguf(tmp_path / "model.gguf", tmp_path))


def test_a_vocabulary_says_nothing_of_memory(tmp_path: Path) -> None:
    assert read_sizes(write_model(tmp_path / "m.gguf", context_length=48)).kv is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"max_position_embeddings": None}, "max_position_embeddings is None, expected a positive int"),
        ({"max_position_embeddings": True}, "max_position_embeddings is True, expected a positive int"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, expected a positive int"),
        ({"num_key_value_heads": "2"}, "num_key_value_heads is '2', expected a positive int"),
    ],
)
def test_what_makes_no_sense_is_named(changed: dict[str, object], why: str, tmp_path: Path) -> None:
    save_config("llama", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(ModelFileError, match=f"^{file}: {why}$"):
        read_sizes(tmp_path)
    file.write_text("[]")
    with pytest.raises(ModelFileError, match=f"^{file}: expected a mapping at the top, found list$"):
        read_sizes(tmp_path)
