"""Which parts of a buffer have been written: boxes of columns and of the batch."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import NamedTuple

from gpu_node.graph.share import Share


class Box(NamedTuple):
    """Columns [first, end) of the rows of a share."""

    first_column: Fraction
    end_column: Fraction
    start: Fraction
    """Where in the batch it begins, from 0 to 1; see `Share.ends`."""
    end: Fraction


def box(first_column: int, num_columns: int, share: Share) -> Box:
    """Some columns of a share of the batch."""
    return Box(Fraction(first_column), Fraction(first_column + num_columns), *share.ends)


class Coverage:
    """The boxes of one buffer that have been written so far."""

    def __init__(self) -> None:
        self._boxes: set[Box] = set()

    def add(self, written: Box) -> None:
        """Note a write."""
        if written not in self._boxes:
            self._boxes = {other for other in self._boxes if not _contains(written, other)} | {written}

    def covers(self, wanted: Box) -> bool:
        """Whether all of ``wanted`` has been written, by one operator or by several."""
        if any(_contains(written, wanted) for written in self._boxes):
            return True
        # between two neighbouring cuts nothing begins or ends: each such cell is written as a whole or not
        columns = _cuts(wanted.first_column, wanted.end_column, {c for b in self._boxes for c in b[:2]})
        rows = _cuts(wanted.start, wanted.end, {r for b in self._boxes for r in b[2:]})
        cells = (Box(*across, *down) for across, down in product(pairwise(columns), pairwise(rows)))
        return all(any(_contains(written, cell) for written in self._boxes) for cell in cells)


def _contains(outer: Box, inner: Box) -> bool:
    return (
        outer.first_column <= inner.first_column
        and inner.end_column <= outer.end_column
        and outer.start <= inner.start
        and inner.end <= outer.end
    )


def _cuts(low: Fraction, high: Fraction, inside: set[Fraction]) -> list[Fraction]:
    return sorted({low, high} | {cut for cut in inside if low < cut < high})
