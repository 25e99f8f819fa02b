"""Parameters of a program: whole tensors of the model file, parts of them, or several joined.

A pass never copies numbers. It says which box of which stored tensor it wants, so a rank of a tensor-parallel group
never holds what it does not use, and a joined product is loaded straight into its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Piece:
    """A box cut out of a stored tensor."""

    tensor: str
    """Its canonical name."""
    stored_shape: tuple[int, ...]
    """Of the whole tensor."""
    ranges: tuple[tuple[int, int], ...]
    """[start, stop) on each axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the box."""
        return tuple(stop - start for start, stop in self.ranges)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the tensor."""
        return self.shape == self.stored_shape

    def cut(self, axis: int, start: int, stop: int) -> Piece:
        """Indices [start, stop) of this box along ``axis``."""
        first = self.ranges[axis][0]
        ranges = (*self.ranges[:axis], (first + start, first + stop), *self.ranges[axis + 1 :])
        return replace(self, ranges=ranges)


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter of operators; linear weights are [outputs, inputs]."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = ()
    """What it is made of, joined along the first axis. Empty: the stored tensor of its own name."""

    @property
    def sources(self) -> tuple[Piece, ...]:
        """``pieces``, also where there is just the one tensor."""
        return self.pieces or (Piece(self.name, self.shape, tuple((0, size) for size in self.shape)),)

    @property
    def num_numbers(self) -> int:
        """Numbers that it holds."""
        return math.prod(self.shape)

    def cut(self, axis: int, start: int, stop: int) -> Weight:
        """Indices [start, stop) along ``axis``, under a name that says so; itself where that is all of it."""
        if (start, stop) == (0, self.shape[axis]):
            return self
        if axis:
            pieces = [piece.cut(axis, start, stop) for piece in self.sources]
        else:
            pieces = _cut_joined(self.sources, start, stop)
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        return Weight(f"{self.name}[{':, ' * axis}{start}:{stop}]", shape, tuple(pieces))

    def check(self) -> None:
        """Assert that its pieces lie inside their tensors and make up its shape."""
        for piece in self.sources:
            assert len(piece.ranges) == len(piece.stored_shape), f"{self.name}: {piece} has a range for each axis"
            for (start, stop), size in zip(piece.ranges, piece.stored_shape, strict=True):
                assert 0 <= start < stop <= size, f"{self.name}: {piece} lies outside of its tensor"
            assert piece.shape[1:] == self.shape[1:], f"{self.name}: {piece} does not fit beside the others"
        assert sum(piece.shape[0] for piece in self.sources) == self.shape[0], f"{self.name}: pieces make up its shape"


def _cut_joined(pieces: Sequence[Piece], start: int, stop: int) -> list[Piece]:
    """Indices [start, stop) of pieces that lie one behind the other."""
    cut = []
    first = 0
    for piece in pieces:
        size = piece.shape[0]
        low, high = max(start - first, 0), min(stop - first, size)
        if low < high:
            cut.append(piece.cut(0, low, high))
        first += size
    return cut


def joined(name: str, weights: Sequence[Weight]) -> Weight:
    """One weight of several, along the first axis."""
    num_rows = sum(weight.shape[0] for weight in weights)
    pieces = tuple(piece for weight in weights for piece in weight.sources)
    return Weight(name, (num_rows, *weights[0].shape[1:]), pieces)
