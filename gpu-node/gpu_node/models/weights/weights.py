"""The weights of a model as tensors of torch, from either kind of file or made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import torch

from gpu_node.graph.program import Program
from gpu_node.graph.stack_names import is_stack
from gpu_node.graph.weight import Piece
from gpu_node.models.adapters.adapters import NO_ADAPTERS, Adapters
from gpu_node.models.architectures.layers.rotary import ROPE_FACTORS
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.dummy.dummy_weights import DummyWeights
from gpu_node.models.weights.weight_check import stored_shapes
from shared.config.engines.engine import LoadFormat

if TYPE_CHECKING:
    from gpu_node.models.gguf.gguf_weights import GgufWeights

CPU = torch.device("cpu")
_TYPES = {ROPE_FACTORS: torch.float32}
"""Of weights that keep their type, whatever the others have."""


def load_weights(
    checkpoint: Checkpoint,
    program: Program,
    load_format: LoadFormat = "auto",
    *,
    adapters: Adapters = NO_ADAPTERS,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
) -> dict[str, torch.Tensor]:
    """All weights of ``program`` by name, in memory of our own. Of each tensor of the file, only what is used is kept.

    They lie on ``device``, in ``dtype``; `ROPE_FACTORS` stay float32, as the angles that are made of them.
    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable.
    """
    stored = stored_shapes(program)
    # the file is asked first: memory is taken for what is there, not for what a configuration claims
    reader = _reader(checkpoint, stored, load_format, device)
    weights = {
        weight.name: torch.empty(weight.shape, dtype=_TYPES.get(weight.name, dtype), device=device)
        for weight in program.weights
    }
    places = _places(program, weights)
    for name in stored:
        _fill(places[name], reader.read(name))
    if ROPE_FACTORS in places:
        _fill(places[ROPE_FACTORS], _rope_factors(checkpoint))
    for name in filter(is_stack, places):
        _fill(places[name], torch.from_numpy(adapters.read(name)))
    return weights


class _Reader(Protocol):
    """Stored tensors, by canonical name."""

    def read(self, name: str) -> torch.Tensor:
        """All of one, of any float."""


class _FromArrays:
    """Tensors over the memory of arrays."""

    def __init__(self, arrays: GgufWeights) -> None:
        self._arrays = arrays

    def read(self, name: str) -> torch.Tensor:
        """All of one, float32."""
        return torch.from_numpy(self._arrays.read(name))


def _reader(
    checkpoint: Checkpoint, stored: Mapping[str, tuple[int, ...]], load_format: LoadFormat, device: torch.device
) -> _Reader:
    path, config = checkpoint.path, checkpoint.config
    if load_format == "dummy":
        return DummyWeights(stored, device)
    if checkpoint.gguf is None:
        from gpu_node.models.hf.safetensors_weights import SafetensorsWeights  # its package only for such a file

        return SafetensorsWeights(path, config, stored)
    from gpu_node.models.gguf.gguf_weights import GgufWeights  # likewise

    return _FromArrays(GgufWeights(checkpoint.gguf, path, config, stored))


def _places(program: Program, weights: Mapping[str, torch.Tensor]) -> dict[str, list[tuple[Piece, torch.Tensor]]]:
    """By stored tensor, the pieces that are wanted of it, and where each goes."""
    places: dict[str, list[tuple[Piece, torch.Tensor]]] = {}
    for weight in program.weights:
        first = 0
        for piece in weight.sources:
            num_rows = piece.shape[0]
            places.setdefault(piece.tensor, []).append((piece, weights[weight.name][first : first + num_rows]))
            first += num_rows
    return places


def _fill(places: list[tuple[Piece, torch.Tensor]], values: torch.Tensor) -> None:
    for piece, place in places:
        place.copy_(_cut(values, piece))


def _cut(values: torch.Tensor, piece: Piece) -> torch.Tensor:
    return values[tuple(slice(*bounds) for bounds in piece.ranges)]


def _rope_factors(checkpoint: Checkpoint) -> torch.Tensor:
    assert checkpoint.config.rope is not None
    return torch.tensor(checkpoint.config.rope.factors, dtype=torch.float32)
