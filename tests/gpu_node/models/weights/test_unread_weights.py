"""Weights that are read one by one are those that are read together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint, open_checkpoint
from gpu_node.models.weights.unread_weights import UnreadWeights
from gpu_node.models.weights.weights import load_weights
from shared.config.engines.engine import LoadFormat
from shared.files.model_file import ModelFileError
from tests.gpu_node.gguf_files import tensors_of, write_gguf
from tests.gpu_node.models.test_families_models import FAMILIES, save, save_config


def assert_alike(checkpoint: Checkpoint, program: Program, load_format: LoadFormat = "auto") -> None:
    together = load_weights(checkpoint, program, load_format)
    one_by_one = dict(UnreadWeights(checkpoint, program, load_format))
    assert list(one_by_one) == list(together)
    for name, values in together.items():
        assert one_by_one[name].dtype == np.float32
        assert torch.tensor(one_by_one[name]).equal(values), name


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_of_a_directory_joined_or_cut(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    program = build_program(checkpoint.config)
    for changed in (program, optimize(program), tensor_parallel(program, 1, 2)):
        assert_alike(checkpoint, changed)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_of_floats_of_other_types_some_of_them_at_odd_places(kind: torch.dtype, tmp_path: Path) -> None:
    save("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for name in list(tensors)[::2]:
        tensors[name] = tensors[name].to(kind)
    save_file(tensors, file)
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    file.write_bytes((length + 3).to_bytes(8, "little") + data[8 : 8 + length] + b"   " + data[8 + length :])
    checkpoint = open_checkpoint(tmp_path)
    assert_alike(checkpoint, optimize(build_program(checkpoint.config)))


def test_of_a_gguf_file(tmp_path: Path) -> None:
    save("llama", tmp_path)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "a.gguf", tmp_path, tensors=tensors_of(tmp_path)))
    assert_alike(checkpoint, optimize(build_program(checkpoint.config)))


def test_that_nobody_trained(tmp_path: Path) -> None:
    save_config("llama-llama3", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert_alike(checkpoint, optimize(build_program(checkpoint.config)), "dummy")


def test_what_is_missing_is_said_before_anything_is_read(tmp_path: Path) -> None:
    save_config("llama", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(ModelFileError, match=r"holds neither model.safetensors nor model.safetensors.index.json$"):
        UnreadWeights(checkpoint, build_program(checkpoint.config))
