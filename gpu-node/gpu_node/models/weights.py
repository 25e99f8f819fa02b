"""The weights of a model, from either kind of file or made up: all of them, or each when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch

from gpu_node.graph.program import Program
from gpu_node.graph.weight import Piece
from gpu_node.models.architectures.rotary import ROPE_FACTORS
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.dummy_weights import DummyWeights
from gpu_node.models.weight_check import stored_shapes
from shared.config.engine import LoadFormat

CPU = torch.device("cpu")
_TYPES = {ROPE_FACTORS: torch.float32}
"""Of weights that keep their type, whatever the others have."""


def load_weights(
    checkpoint: Checkpoint,
    program: Program,
    load_format: LoadFormat = "auto",
    *,
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
    return weights


class UnreadWeights(Mapping[str, torch.Tensor]):
    """The weights of a program by name, float32, each read when it is asked for: for who makes something else of it.

    Nothing is kept, so that memory holds one at a time and not the model. Some may be views of the model's file.
    """

    def __init__(self, checkpoint: Checkpoint, program: Program, load_format: LoadFormat = "auto") -> None:
        """`ModelFileError` as `load_weights`, before anything is read."""
        self._checkpoint = checkpoint
        self._weights = {weight.name: weight for weight in program.weights}
        self._reader = _reader(checkpoint, stored_shapes(program), load_format, CPU)

    def __getitem__(self, name: str) -> torch.Tensor:
        pieces = [self._read(piece) for piece in self._weights[name].sources]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _read(self, piece: Piece) -> torch.Tensor:
        stored = _rope_factors(self._checkpoint) if piece.tensor == ROPE_FACTORS else self._reader.read(piece.tensor)
        return _cut(stored, piece).to(torch.float32)


class _Reader(Protocol):
    """Stored tensors, by canonical name."""

    def read(self, name: str) -> torch.Tensor:
        """All of one, of any float."""


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

    return GgufWeights(checkpoint.gguf, path, config, stored)


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
