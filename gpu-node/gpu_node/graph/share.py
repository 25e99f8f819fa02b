"""Shares of a step's batch: what of it an operator works on.

Sequences that compute more than one row, or stand before one that does, are the *prefill* of a step, and the single
rows behind them its *decode*. Those whose keys and values lie on another device stand last: they are *remote*, all
others *local*. So a phase or a residence is a run of sequences, as any other share is. How many sequences it has
differs from step to step; it may have none.

A range is cut between sequences, so that a share has rows and sequences of its own. Thus operators on rows and
attention on sequences agree on what a share is: what one writes for it, the other finds there, and no share reads keys
that another one writes. Parts are as even in rows as the sequences allow; with fewer sequences than parts, some are
empty. The CPU device cuts by the same rule (``Step::take_shares`` in csrc/step.cpp).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import accumulate


class Part(StrEnum):
    """Sequences of a step by what they are."""

    ALL = "all"
    PREFILL = "prefill"
    DECODE = "decode"
    LOCAL = "local"
    REMOTE = "remote"


SECTIONS: Mapping[Part, frozenset[int]] = {
    Part.ALL: frozenset({0, 1, 2, 3}),
    Part.PREFILL: frozenset({0, 2}),
    Part.DECODE: frozenset({1, 3}),
    Part.LOCAL: frozenset({0, 1}),
    Part.REMOTE: frozenset({2, 3}),
}
"""What a sequence of a part can be besides: local prefill 0 or decode 1, remote prefill 2 or decode 3."""


@dataclass(frozen=True, slots=True)
class Range:
    """What lies from ``start`` to ``end`` of a part, both fractions of the part's rows.

    A fraction's place is the first sequence that has at least so much of the part's rows before it.
    """

    part: Part = Part.ALL
    start: Fraction = Fraction(0)
    end: Fraction = Fraction(1)

    def __hash__(self) -> int:
        """Of whole numbers: that of a fraction takes longer than all else that a program's check does."""
        return hash((self.part, self.start.as_integer_ratio(), self.end.as_integer_ratio()))

    @property
    def is_full(self) -> bool:
        """Whether it is all of its part."""
        return self.start == 0 and self.end == 1

    def cut(self, index: int, count: int) -> Range:
        """Part ``index`` of ``count`` equal ones."""
        size = (self.end - self.start) / count
        return Range(self.part, self.start + index * size, self.start + (index + 1) * size)

    def contains(self, other: Range) -> bool:
        """Whether ``other`` lies in it in every step."""
        if self.part is other.part:
            return self.start <= other.start and other.end <= self.end
        return self.is_full and _is_within(other.part, self.part)


@dataclass(frozen=True, slots=True)
class Share:
    """The sequences that lie in all of ``ranges``; without any, the whole batch. Made by `share_of`."""

    ranges: tuple[Range, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole batch."""
        return not self.ranges

    @property
    def sections(self) -> frozenset[int]:
        """Where its sequences can be."""
        return SECTIONS[Part.ALL].intersection(*(SECTIONS[one.part] for one in self.ranges))

    @property
    def is_possible(self) -> bool:
        """Whether there is a step in which it has sequences."""
        return bool(self.sections) and all(0 <= one.start < one.end <= 1 for one in self.ranges)

    def __and__(self, other: Share) -> Share:
        """What lies in both."""
        return share_of(*self.ranges, *other.ranges)

    def cut(self, index: int, count: int) -> Share:
        """Part ``index`` of ``count``; together they make it up. The last of its ranges is cut evenly."""
        *others, last = self.ranges or (Range(),)
        return share_of(*others, last.cut(index, count))

    def contains(self, other: Share) -> bool:
        """Whether ``other`` lies in it in every step, as far as one of its ranges shows that."""
        return all(any(outer.contains(inner) for inner in other.ranges or (Range(),)) for outer in self.ranges)

    def __str__(self) -> str:
        """Its ranges, such as ``decode``, or ``all 0–1/2``."""
        texts = [one.part if one.is_full else f"{one.part} {one.start}–{one.end}" for one in self.ranges]
        return " of ".join(texts) or str(Part.ALL)


def share_of(*ranges: Range) -> Share:
    """What lies in all of ``ranges``, as the only `Share` that says so with one range of each part at most."""
    found: dict[Part, Range] = {}
    for one in ranges:
        same = found.get(one.part, one)
        found[one.part] = Range(one.part, max(one.start, same.start), min(one.end, same.end))
    order = list(Part)
    needed = [one for one in found.values() if not (one.is_full and _says_nothing(one.part, found))]
    return Share(tuple(sorted(needed, key=lambda one: order.index(one.part))))


def _says_nothing(part: Part, parts: Collection[Part]) -> bool:
    """Whether all of ``part`` is no less than the whole batch, or another of ``parts``."""
    return part is Part.ALL or any(_is_within(other, part) for other in parts if other is not part)


def _is_within(inner: Part, outer: Part) -> bool:
    return SECTIONS[inner] <= SECTIONS[outer]


WHOLE = Share()
PREFILL, DECODE, LOCAL, REMOTE = (
    Share((Range(part),)) for part in (Part.PREFILL, Part.DECODE, Part.LOCAL, Part.REMOTE)
)


class BatchLayout:
    """Which sequences and rows of one step are a share of it."""

    def __init__(self, num_rows: Sequence[int], num_remote: int = 0) -> None:
        """``num_rows`` of each sequence, at least one; the last ``num_remote`` are remote."""
        num_sequences = len(num_rows)
        first_remote = num_sequences - num_remote
        assert first_remote >= 0, "no more sequences are remote than there are"
        first_decode = next((index + 1 for index in reversed(range(num_sequences)) if num_rows[index] != 1), 0)
        self._before = [0, *accumulate(num_rows)]
        self._parts = {
            Part.ALL: (0, num_sequences),
            Part.PREFILL: (0, first_decode),
            Part.DECODE: (first_decode, num_sequences),
            Part.LOCAL: (0, first_remote),
            Part.REMOTE: (first_remote, num_sequences),
        }

    @property
    def num_rows(self) -> int:
        """Of all sequences."""
        return self._before[-1]

    def sequences(self, share: Share) -> range:
        """Indices of the sequences of ``share``."""
        runs = [self._run(one) for one in share.ranges]
        first = max((run.start for run in runs), default=0)
        return range(first, max(first, min((run.stop for run in runs), default=len(self._before) - 1)))

    def rows(self, share: Share) -> slice:
        """Their rows."""
        sequences = self.sequences(share)
        return slice(self._before[sequences.start], self._before[sequences.stop])

    def draws(self, share: Share, draw_rows: Sequence[int]) -> slice:
        """Of ``draw_rows``, ascending, those that are among these rows."""
        rows = self.rows(share)
        return slice(bisect_left(draw_rows, rows.start), bisect_left(draw_rows, rows.stop))

    def _run(self, one: Range) -> range:
        first, end = self._parts[one.part]
        before = self._before[first]
        num_rows = self._before[end] - before
        # whole numbers, for this is asked in each step: at least a fraction of the rows is at least that, rounded up
        cuts = (-(-num_rows * cut.numerator // cut.denominator) for cut in (one.start, one.end))
        return range(*(bisect_left(self._before, before + cut, first, end) for cut in cuts))
