"""Whether one more request may run: only while the predicted peak of KV memory fits, so preemption is the exception.

The rule knows numbers only, so that every engine asks the same one, whatever it knows of its sequences.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

UNTIL_ONE_ENDS = sys.maxsize
"""Steps: as long as none of those that run ends or leaves."""


@dataclass(frozen=True, slots=True)
class AdmissionCase:
    """Those that have places, and the one that wants some."""

    num_taken_places: int
    num_wanted_places: int
    num_usable_blocks: int
    """KV blocks that are held or free."""
    peak_slots: Callable[[], int]
    """KV slots that all of them are predicted to take at once. O(those that run), so it is asked where it decides."""


class AdmissionRule:
    """Of one model on one engine."""

    def __init__(self, max_num_seqs: int, block_size: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._block_size = block_size

    def num_blocked_steps(self, case: AdmissionCase) -> int:
        """Steps that certainly pass before the candidate is admitted if none comes or ends; 0: it is admitted now.

        A step lowers the predicted peak by one slot at most: where the candidate counts in it, it will be one token
        shorter at that time; what the others come to at a time does not depend on when it is predicted, unless they
        outlive the mean, and then it is more.
        """
        if case.num_taken_places + case.num_wanted_places > self._max_num_seqs:
            return UNTIL_ONE_ENDS
        if not case.num_taken_places:
            return 0  # alone, a request always has its try
        num_usable_slots = case.num_usable_blocks * self._block_size + self._block_size - 1
        return max(0, case.peak_slots() - num_usable_slots)

    def num_admittable(self, case: AdmissionCase, typical_blocks: int) -> int:
        """How many requests of one place and so many KV blocks fit beside those of a case, which are all there are."""
        num_places = self._max_num_seqs - case.num_taken_places - case.num_wanted_places
        if num_places > 0:
            num_left_blocks = case.num_usable_blocks - case.peak_slots() // self._block_size
            num_places = min(num_places, num_left_blocks // typical_blocks)
        return max(num_places, 0 if case.num_taken_places + case.num_wanted_places else 1)
