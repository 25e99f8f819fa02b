"""The weights of a model as arrays, without torch: from either kind of file or made up, each read when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpu_node.graph.program import Program
from gpu_node.graph.stack_names import is_stack
from gpu_node.graph.weight import Piece
from gpu_node.models.adapters.adapters import NO_ADAPTERS, Adapters
from gpu_node.models.architectures.layers.rotary import ROPE_FACTORS
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.dummy.dummy_arrays import DummyArrays
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.weights.weight_check import stored_shapes
from shared.config.engines.engine import LoadFormat

if TYPE_CHECKING:
    from gpu_node.models.gguf.gguf_weights import ReadBlocks


class UnreadWeights(Mapping[str, Float32s]):
    """The weights of a program by name, each read when it is asked for: for callers that make something else of it.

    Nothing is kept, so that memory holds one at a time and not the model. Some may be views of the model's file, which
    are not to be written.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        program: Program,
        load_format: LoadFormat = "auto",
        adapters: Adapters = NO_ADAPTERS,
        read_blocks: ReadBlocks | None = None,
    ) -> None:
        """`ModelFileError` as `load_weights`, before anything is read. ``read_blocks`` of quantised files."""
        self._checkpoint = checkpoint
        self._adapters = adapters
        self._weights = {weight.name: weight for weight in program.weights}
        self._reader = _reader(checkpoint, stored_shapes(program), load_format, read_blocks)

    def __getitem__(self, name: str) -> Float32s:
        pieces = [self._read(piece) for piece in self._weights[name].sources]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _read(self, piece: Piece) -> Float32s:
        return self._stored(piece.tensor)[tuple(slice(*bounds) for bounds in piece.ranges)]

    def _stored(self, tensor: str) -> Float32s:
        if tensor == ROPE_FACTORS:
            return _rope_factors(self._checkpoint)
        return self._adapters.read(tensor) if is_stack(tensor) else self._reader.read(tensor)


class _Reader(Protocol):
    """Stored tensors, by canonical name."""

    def read(self, name: str) -> Float32s:
        """All of one."""


def _reader(
    checkpoint: Checkpoint,
    stored: Mapping[str, tuple[int, ...]],
    load_format: LoadFormat,
    read_blocks: ReadBlocks | None,
) -> _Reader:
    if load_format == "dummy":
        return DummyArrays(stored)
    if checkpoint.gguf is None:
        from gpu_node.models.hf.safetensors_arrays import SafetensorsArrays  # its package only for such a file

        return SafetensorsArrays(checkpoint.path, checkpoint.config, stored)
    from gpu_node.models.gguf.gguf_weights import GgufWeights, none_read  # likewise

    return GgufWeights(checkpoint.gguf, checkpoint.path, checkpoint.config, stored, read_blocks or none_read)


def _rope_factors(checkpoint: Checkpoint) -> Float32s:
    assert checkpoint.config.rope is not None
    return np.array(checkpoint.config.rope.factors, dtype=np.float32)
