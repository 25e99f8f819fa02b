"""Which parts of a buffer have been written: boxes of columns and of the batch.

How many rows a phase or a residence has is not known before a step, so the cuts of one part of the batch have no order
among those of another. But each sequence is of one phase and one residence, its section, and lies between two
neighbouring cuts of every part that has this section. Such a cell is in a share or not, whatever the step: a share is
covered if each of its cells is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from gpu_node.graph.share import SECTIONS, Part, Share

_MAX_PAIRS = 4096
"""Of shares, whose answer is kept: a program has few of them, and asks for each pair in every layer."""


class Box(NamedTuple):
    """Columns [first, end) of the rows of a share."""

    first_column: int
    end_column: int
    share: Share


def box(first_column: int, num_columns: int, share: Share) -> Box:
    """Some columns of a share of the batch."""
    return Box(first_column, first_column + num_columns, share)


class Coverage:
    """The boxes of one buffer that have been written so far."""

    def __init__(self) -> None:
        self._boxes: set[Box] = set()

    def add(self, written: Box) -> None:
        """Note a write."""
        if written not in self._boxes:
            self._boxes = {other for other in self._boxes if not contains(written, other)} | {written}

    def covers(self, wanted: Box) -> bool:
        """Whether all of ``wanted`` has been written in every step, by one operator or by several."""
        if any(contains(written, wanted) for written in self._boxes):
            return True
        near = [one for one in self._boxes if meet(one, wanted)]
        inside = {column for one in near for column in one[:2]}
        cuts = sorted(
            {wanted.first_column, wanted.end_column}
            | {column for column in inside if wanted.first_column < column < wanted.end_column}
        )
        # between two neighbouring cuts nothing begins or ends
        is_covered = all(
            _is_covered(
                wanted.share, [one.share for one in near if one.first_column <= first and end <= one.end_column]
            )
            for first, end in pairwise(cuts)
        )
        if is_covered:
            self.add(wanted)  # one box in the place of many: the next reader asks for less
        return is_covered


def meet(one: Box, other: Box) -> bool:
    """Whether there is a step in which they have something in common."""
    has_columns = one.first_column < other.end_column and other.first_column < one.end_column
    return has_columns and _meets(one.share, other.share)


@lru_cache(maxsize=_MAX_PAIRS)
def _meets(one: Share, other: Share) -> bool:
    return (one & other).is_possible


def contains(outer: Box, inner: Box) -> bool:
    """Whether ``inner`` lies in ``outer`` in every step, as far as one range of the batch shows that."""
    return (
        outer.first_column <= inner.first_column
        and inner.end_column <= outer.end_column
        and outer.share.contains(inner.share)
    )


_Cell = Mapping[Part, tuple[Fraction, Fraction]]
"""Where a sequence lies in each part that has it: between which two cuts."""


def _is_covered(wanted: Share, written: Sequence[Share]) -> bool:
    cuts: dict[Part, set[Fraction]] = {}
    for one in (wanted, *written):
        for bounds in one.ranges:
            cuts.setdefault(bounds.part, {Fraction(0), Fraction(1)}).update((bounds.start, bounds.end))
    return all(
        any(_has(one, section, cell) for one in written)
        for section in wanted.sections
        for cell in _cells(section, cuts)
        if _has(wanted, section, cell)
    )


def _cells(section: int, cuts: Mapping[Part, Collection[Fraction]]) -> list[_Cell]:
    parts = [part for part in cuts if section in SECTIONS[part]]
    return [
        dict(zip(parts, places, strict=True)) for places in product(*(pairwise(sorted(cuts[part])) for part in parts))
    ]


def _has(share: Share, section: int, cell: _Cell) -> bool:
    return all(
        section in SECTIONS[one.part] and one.start <= cell[one.part][0] and cell[one.part][1] <= one.end
        for one in share.ranges
    )
