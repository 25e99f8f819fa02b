"""Adapters that vLLM would take for this model's, and that are another's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gpu_node.models.adapters.adapter_config import AdapterConfig
from gpu_node.vllm.inside.adapter_shapes import ModelModules, check_shapes
from shared.files.model_file import ModelFileError

UP = {f"model.layers.{one}.up.weight": torch.zeros(6, 8) for one in range(2)}
"""Of a model of two layers."""


def check(folder: Path, model: Mapping[str, torch.Tensor], module: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """An adapter of rank 4 with these matrices for a module."""
    (folder / "model").mkdir()
    save_file(dict(model), folder / "model" / "model.safetensors")
    name = f"base_model.model.{module}"
    tensors = {f"{name}.lora_A.weight": torch.zeros(a), f"{name}.lora_B.weight": torch.zeros(b)}
    save_file(tensors, folder / "adapter_model.safetensors")
    config = AdapterConfig(folder, 4, 8.0, {}, {}, by_root=False)
    check_shapes(folder, config, ModelModules(folder / "model"))


@pytest.mark.parametrize(
    ("model", "module"),
    [
        (UP, "model.layers.1.up"),
        ({"layers.1.up.weight": torch.zeros(6, 8)}, "model.layers.1.up"),
        ({"language_model.model.layers.1.up.weight": torch.zeros(6, 8)}, "model.layers.1.up"),
        ({"h.1.c_fc.weight": torch.zeros(8, 6)}, "transformer.h.1.c_fc"),
    ],
    ids=["as stored", "of a bare model", "inside another", "transposed"],
)
def test_matrices_that_fit(tmp_path: Path, model: dict[str, torch.Tensor], module: str) -> None:
    check(tmp_path, model, module, (4, 8), (6, 4))


@pytest.mark.parametrize(
    ("model", "module"),
    [
        ({"model.layers.1.up.weight": torch.zeros(6, 1, dtype=torch.int32)}, "model.layers.1.up"),
        ({"model.layers.1.up.qweight": torch.zeros(6, 1, dtype=torch.int32)}, "model.layers.1.up"),
        (UP, "model.layers.1.experts.up"),
    ],
    ids=["packed", "packed under another name", "a name that no layer has"],
)
def test_what_cannot_be_told_is_left_to_vllm(tmp_path: Path, model: dict[str, torch.Tensor], module: str) -> None:
    check(tmp_path, model, module, (4, 8), (6, 4))


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ((4, 7), (6, 4), "(rank, inputs) and (outputs, rank) with rank 4, of a weight of shape (6, 8)"),
        ((4, 8), (5, 4), "(rank, inputs) and (outputs, rank) with rank 4, of a weight of shape (6, 8)"),
        ((3, 8), (6, 3), "(rank, inputs) and (outputs, rank) with rank 4"),
        ((4, 8), (6, 3), "(rank, inputs) and (outputs, rank) with rank 4"),
        ((4, 8, 1), (6, 4), "(rank, inputs) and (outputs, rank) with rank 4"),
    ],
)
def test_matrices_of_other_shapes(tmp_path: Path, a: tuple[int, ...], b: tuple[int, ...], why: str) -> None:
    name = "base_model.model.model.layers.1.up"
    with pytest.raises(ModelFileError, match=re.escape(f"{name} has matrices A and B of shapes {a} and {b}")) as told:
        check(tmp_path, UP, "model.layers.1.up", a, b)
    assert str(told.value).endswith(f"; expected are {why}")


def test_matrices_of_a_layer_that_the_model_has_not(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=re.escape("model.layers.2.up is of a layer that the model has not")):
        check(tmp_path, UP, "model.layers.2.up", (4, 8), (6, 4))


def test_pickles_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(ModelFileError, match=re.escape("holds no adapter_model.safetensors")):
        check_shapes(tmp_path, AdapterConfig(tmp_path, 4, 8.0, {}, {}, by_root=False), ModelModules(tmp_path))
