"""Parts of a step's batch. A batch is cut between sequences, so that a part has rows and sequences of its own.

Thus operators on rows and attention on sequences agree on what a part is: what one writes for part i of n, the other
finds there, and no part reads keys that another part writes. Parts are as even in rows as the sequences allow; with
fewer sequences than parts, some are empty. The CPU device cuts by the same rule (``Step::rows_of`` in csrc/step.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Share:
    """Part ``index`` of ``count`` of a step's batch."""

    index: int = 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole batch."""
        return self.count == 1

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """Where it begins and ends in a batch from 0 to 1. A share that lies in another here does so in every step."""
        return Fraction(self.index, self.count), Fraction(self.index + 1, self.count)


WHOLE = Share()


def sequences_of(num_rows: Sequence[int], share: Share) -> range:
    """Indices of the sequences, of ``num_rows`` rows each (at least one), that belong to ``share``.

    Cut i of n is the first sequence with at least i / n of all rows before it.
    """
    before = [0, *accumulate(num_rows)]
    cuts = [
        next(index for index, rows in enumerate(before) if rows * share.count >= before[-1] * number)
        for number in (share.index, share.index + 1)
    ]
    return range(*cuts)
