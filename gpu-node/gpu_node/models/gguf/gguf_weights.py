"""Tensors of a GGUF file as float32 under canonical names, checked against what is wanted: by numpy alone.

A caller that has quicker code for blocks of some types gives it (`ReadBlocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from gpu_node.models.config import Family, ModelConfig
from gpu_node.models.gguf.gguf_tensors import wanted_tensors
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.tensors.stored_weight import weight_of
from shared.files.gguf_file import GgufFile, GgufTensor

_NUMBERS_AT_A_TIME = 1 << 17
"""So that what the package makes of them on the way stays in a processor's cache."""
_PAIRS_SIDE_BY_SIDE = (Family.LLAMA, Family.MIXTRAL)
"""Families of the architecture "llama", whose files have another order of rows in queries and keys."""

ReadBlocks = Callable[[int, npt.NDArray[np.uint8], Float32s], bool]
"""Writes what blocks [blocks, bytes] of a type, by its number, stand for into [blocks, numbers]; or False."""


def none_read(_kind: int, _blocks: npt.NDArray[np.uint8], _values: Float32s) -> bool:
    """The package reads all types."""
    return False


class GgufWeights:
    """The tensors of a file that are wanted, each read when it is asked for."""

    def __init__(
        self,
        file: GgufFile,
        path: Path,
        config: ModelConfig,
        stored_shapes: Mapping[str, tuple[int, ...]],
        read_blocks: ReadBlocks = none_read,
    ) -> None:
        """``stored_shapes``: by canonical name. `ModelFileError` names file and tensor, as `wanted_tensors`."""
        self._file, self._config, self._read_blocks = file, config, read_blocks
        self._wanted = wanted_tensors(file, path, config, stored_shapes)
        self._shapes = stored_shapes
        self._last: tuple[tuple[str, ...], list[Float32s]] = (), []

    def read(self, name: str) -> Float32s:
        """The tensor of a canonical name as float32."""
        place = self._wanted[name]
        if self._last[0] != place.names:  # what several weights lie in is dequantised once: they are read in a row
            shape = place.shape(self._shapes[name])
            self._last = place.names, [self._tensor(self._file.tensors[one]).reshape(shape) for one in place.names]
        values = weight_of(place, self._last[1], np.stack)
        if self._config.family in _PAIRS_SIDE_BY_SIDE and name.endswith((".q", ".k")):
            values = _halves_from_pairs(values, self._config.head_dim)
        return values

    def _tensor(self, tensor: GgufTensor) -> Float32s:
        """Its values as float32, of its shape."""
        values = np.empty(tensor.shape, dtype=np.float32)
        block_numbers, block_bytes = GGML_QUANT_SIZES[tensor.type]
        numbers, blocks = values.reshape(-1, block_numbers), tensor.data.reshape(-1, block_bytes)
        if not self._read_blocks(tensor.type, blocks, numbers):
            _dequantize(tensor.type, blocks, numbers)
        return values


def _dequantize(kind: GGMLQuantizationType, blocks: npt.NDArray[np.uint8], numbers: Float32s) -> None:
    block_numbers = numbers.shape[1]
    step = _NUMBERS_AT_A_TIME // block_numbers
    for first in range(0, len(blocks), step):
        part = slice(first, first + step)
        # as one long row: the package computes few rows at a time, and these are short
        numbers[part] = dequantize(blocks[part].reshape(1, -1), kind).reshape(-1, block_numbers)


def _halves_from_pairs(values: Float32s, head_dim: int) -> Float32s:
    """Undo the row order that GGUF files of the Llama family have in their query and key weights.

    A rotary embedding turns pairs of numbers of a head. Published Llama weights pair number i with number
    i + head_dim / 2; the GGUF converter reorders the rows of each head so that a pair lies side by side, (2i, 2i + 1).
    Dot products of q and k are the same in both orders. We keep one rope kernel, for the first order.

    ``values``: [heads * head_dim, inputs].
    """
    num_inputs = values.shape[1]
    return values.reshape(-1, head_dim // 2, 2, num_inputs).swapaxes(1, 2).reshape(-1, num_inputs)
