"""GGUF files of Mixtral and GPT-2, and of models that are not built, that are not what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_node.models.checkpoint import open_checkpoint
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.gguf_files import Array, experts_apart, tensors_of, write_gguf
from tests.gpu_node.models.test_families_models import save


def zeros(*shape: int) -> Array:
    return np.zeros(shape, dtype=np.float32)


MISSING = [
    ("mixtral", "blk.1.ffn_gate_inp.weight"),
    ("mixtral", "blk.0.ffn_down_exps.weight"),
    ("gpt2", "position_embd.weight"),
    ("gpt2", "blk.1.attn_qkv.weight"),
    ("gpt2", "blk.0.attn_qkv.bias"),
    ("gpt2", "blk.0.ffn_norm.bias"),
    ("gpt2", "output_norm.bias"),
]
EXTRA = [
    ("mixtral", "blk.0.ffn_gate.weight"),
    ("mixtral", "blk.0.ffn_gate_inp.bias"),
    ("mixtral", "blk.0.ffn_up.0.weight"),
    ("gpt2", "blk.0.attn_q.weight"),
    ("gpt2", "rope_freqs.weight"),
    ("llama", "blk.0.attn_q.bias"),
]
WRONG = [
    ("mixtral", "blk.0.ffn_gate_inp.weight", (4, 32), (5, 32)),
    ("mixtral", "blk.1.ffn_up_exps.weight", (4, 48, 32), (5, 48, 32)),
    ("mixtral", "blk.1.ffn_down_exps.weight", (5, 48, 32), (5, 32, 48)),
    ("gpt2", "position_embd.weight", (64, 32), (128, 32)),
    ("gpt2", "blk.0.attn_qkv.weight", (64, 32), (96, 32)),
    ("gpt2", "blk.0.attn_qkv.bias", (32,), (96,)),
    ("gpt2", "blk.1.ffn_up.weight", (32, 48), (48, 32)),
]


@pytest.mark.parametrize(("family", "name"), MISSING)
def test_a_missing_tensor_is_named(family: str, name: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    tensors = tensors_of(tmp_path)
    del tensors[name]
    path = write_gguf(tmp_path / "odd.gguf", tmp_path, tensors=tensors)
    with pytest.raises(ModelFileError, match=rf"odd\.gguf: missing tensors: {name}; tensors not known: none$"):
        tiny.make_engine(path)


@pytest.mark.parametrize(("family", "name"), EXTRA)
def test_a_tensor_too_many_is_named(family: str, name: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    path = write_gguf(tmp_path / "odd.gguf", tmp_path, tensors=tensors_of(tmp_path) | {name: zeros(32)})
    with pytest.raises(ModelFileError, match=rf"odd\.gguf: missing tensors: none; tensors not known: {name}$"):
        tiny.make_engine(path)


@pytest.mark.parametrize(("family", "name", "shape", "expected"), WRONG)
def test_a_tensor_of_another_shape_is_named(
    family: str, name: str, shape: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path
) -> None:
    save(family, tmp_path)
    path = write_gguf(tmp_path / "odd.gguf", tmp_path, tensors=tensors_of(tmp_path) | {name: zeros(*shape)})
    with pytest.raises(ModelFileError) as error:
        tiny.make_engine(path)
    assert str(error.value) == f"{path}: tensor {name} has shape {shape}, expected {expected}"


def test_an_expert_that_is_missing_or_of_another_shape_is_named(tmp_path: Path) -> None:
    save("mixtral", tmp_path)
    apart = experts_apart(tensors_of(tmp_path))
    wrong = apart | {"blk.0.ffn_down.3.weight": zeros(48, 32)}
    with pytest.raises(ModelFileError, match=r"ffn_down\.3\.weight has shape \(48, 32\), expected \(32, 48\)"):
        tiny.make_engine(write_gguf(tmp_path / "a.gguf", tmp_path, tensors=wrong))
    del apart["blk.0.ffn_down.3.weight"]
    with pytest.raises(ModelFileError, match=r"missing tensors: blk\.0\.ffn_down\.3\.weight;"):
        tiny.make_engine(write_gguf(tmp_path / "b.gguf", tmp_path, tensors=apart))


@pytest.mark.parametrize(
    ("family", "metadata", "words"),
    [
        (
            "qwen2",
            {"arch": "gemma2"},
            "architecture 'gemma2' is not supported; 'llama', .*'nomic-bert', 'modern-bert' are",
        ),
        ("qwen2", {"arch": "opt"}, "architecture 'opt' is not supported; .*directory of safetensors files"),
        ("qwen2", {"attention__value_length": 4}, "keys and values of different size"),
        ("qwen3", {"expert_count": 4}, "experts in architecture 'qwen3' are not supported"),
        ("mixtral", {"expert_used_count": 6}, "6 of 5 experts cannot be chosen"),
        ("llama", {"expert_count": 4}, "llama.expert_used_count is None, expected a positive int"),
        ("llama", {"rope__scaling__type": "yarn"}, "of type 'yarn' are not supported; 'linear' is"),
        ("llama", {"rope__scaling__type": "longrope"}, "of type 'longrope' are not supported"),
        ("gpt2", {"attention__head_count": 5}, "32 columns cannot be shared by 5 heads"),
        ("gpt2", {"attention__layer_norm_epsilon": "small"}, "gpt2.attention.layer_norm_epsilon is 'small', expected"),
    ],
)
def test_what_is_not_built_is_refused(family: str, metadata: dict[str, Any], words: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    with pytest.raises(ModelFileError, match=rf"odd\.gguf: .*{words}"):
        open_checkpoint(write_gguf(tmp_path / "odd.gguf", tmp_path, **metadata))


def test_an_embedding_that_is_missing_or_no_matrix_is_named(tmp_path: Path) -> None:
    save("gpt2", tmp_path)
    tensors = tensors_of(tmp_path) | {"token_embd.weight": zeros(96)}
    with pytest.raises(ModelFileError, match=r"token_embd\.weight has shape \(96,\), expected a matrix"):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", tmp_path, tensors=tensors))
    del tensors["token_embd.weight"]
    with pytest.raises(ModelFileError, match=r"tensor token_embd\.weight is missing"):
        open_checkpoint(write_gguf(tmp_path / "b.gguf", tmp_path, tensors=tensors))


def test_a_part_of_a_split_model_says_what_to_do(tmp_path: Path) -> None:
    save("llama", tmp_path)
    path = write_gguf(tmp_path / "model-00001-of-00003.gguf", tmp_path, keys={"split.count": 3})
    with pytest.raises(ModelFileError, match=r"00003\.gguf: it is one of 3 parts of a model; merge them into one file"):
        open_checkpoint(path)
