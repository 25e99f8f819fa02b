"""Tensors of a GGUF file as float32 under canonical names, checked against what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.gguf.gguf_tensors import wanted_tensors
from gpu_node.models.stored import Stored
from gpu_node.models.stored_weight import weight_of
from shared.files.gguf_file import GgufFile, GgufTensor

_NUMBERS_AT_A_TIME = 1 << 18
"""So that what the package makes of them on the way stays in a processor's cache."""
_PAIRS_SIDE_BY_SIDE = (Family.LLAMA, Family.MIXTRAL)
"""Families of the architecture "llama", whose files have another order of rows in queries and keys."""


def read_tensors(
    file: GgufFile, path: Path, config: ModelConfig, stored_shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors ``stored_shapes`` (by canonical name), one after another, each as float32.

    `ModelFileError` names file and tensor, before anything is read, as `wanted_tensors`.
    """
    return _weights(file, config, wanted_tensors(file, path, config, stored_shapes))


def _weights(file: GgufFile, config: ModelConfig, wanted: Mapping[str, Stored]) -> Iterator[tuple[str, torch.Tensor]]:
    sharing: dict[tuple[str, ...], list[str]] = {}  # what several weights lie in is dequantised once
    for weight, place in wanted.items():
        sharing.setdefault(place.names, []).append(weight)
    for place_names, weights in sharing.items():
        tensors = [_read(file.tensors[name]) for name in place_names]
        for weight in weights:
            values = weight_of(wanted[weight], tensors)
            if config.family in _PAIRS_SIDE_BY_SIDE and weight.endswith((".q", ".k")):
                values = _halves_from_pairs(values, config.head_dim)
            yield weight, values


def _read(tensor: GgufTensor) -> torch.Tensor:
    """Its values as float32, of its shape."""
    values = torch.empty(tensor.shape)
    block_numbers, block_bytes = GGML_QUANT_SIZES[tensor.type]
    numbers, blocks = values.numpy().reshape(-1, block_numbers), tensor.data.reshape(-1, block_bytes)
    step = _NUMBERS_AT_A_TIME // block_numbers
    for first in range(0, len(blocks), step):
        part = slice(first, first + step)
        # as one long row: the package computes few rows at a time, and these are short
        numbers[part] = dequantize(blocks[part].reshape(1, -1), tensor.type).reshape(-1, block_numbers)
    return values


def _halves_from_pairs(values: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Undo the row order that GGUF files of the Llama family have in their query and key weights.

    A rotary embedding turns pairs of numbers of a head. Published Llama weights pair number i with number
    i + head_dim / 2; the GGUF converter reorders the rows of each head so that a pair lies side by side, (2i, 2i + 1).
    Dot products of q and k are the same in both orders. We keep one rope kernel, for the first order.

    ``values``: [heads * head_dim, inputs].
    """
    num_inputs = values.shape[1]
    return values.reshape(-1, head_dim // 2, 2, num_inputs).transpose(1, 2).reshape(-1, num_inputs)
