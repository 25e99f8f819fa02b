"""How many KV blocks a batch will come to need: the peak over the coming steps, not the sum of the worst cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

WINDOW_REQUESTS = 64
"""A mean forgets requests older than about this many, so it follows a change of the load."""

MEAN_DIGITS = 9


class RunningMean:
    """Mean of the last observations, exact until there are `WINDOW_REQUESTS`, exponentially weighted from then on."""

    def __init__(self) -> None:
        self._num_observed = 0
        self._mean = 0.0

    def observe(self, value: float) -> None:
        """Take one more value into account."""
        self._num_observed += 1
        self._mean += (value - self._mean) / min(self._num_observed, WINDOW_REQUESTS)

    def value(self, default: float) -> float:
        """The mean; ``default`` before the first observation.

        Without its last digits, which hang on the order of those that ended in one step: rounding up would show them.
        """
        return round(self._mean, MEAN_DIGITS) if self._num_observed else default


@dataclass(frozen=True, slots=True)
class KvDemand:
    """KV slots that one sequence will need: ``num_tokens`` soon, then ``num_growth_tokens`` more, one each step."""

    num_tokens: int
    num_growth_tokens: int
    blocks: Sequence[int] = ()
    """Blocks that it holds, or would take over from the prefix cache; counted once among all sequences."""


def peak_slots(demands: Iterable[KvDemand], block_size: int) -> int:
    """`peak_of_growths` of sequences that share blocks: a block that several of them hold counts with the first."""
    longest_first = sorted(demands, key=lambda demand: -demand.num_growth_tokens)
    return peak_of_growths(_without_shared(longest_first, block_size), block_size)


def _without_shared(demands: Iterable[KvDemand], block_size: int) -> Iterator[tuple[int, int]]:
    seen: set[int] = set()
    for demand in demands:
        num_seen = len(seen)
        seen.update(demand.blocks)
        num_shared_blocks = len(demand.blocks) - (len(seen) - num_seen)
        yield demand.num_growth_tokens, demand.num_tokens - num_shared_blocks * block_size


def peak_of_growths(longest_first: Iterable[tuple[int, int]], block_size: int) -> int:
    """Upper bound of the KV slots taken at once while sequences grow, if none is added; whole blocks of it are held.

    Of each sequence, the tokens that it grows by and those that it has; those that grow longest come first. Memory only
    falls when a sequence ends, so the peak lies at one of the ends. Just before the end of the sequence that grows by
    g, the ones alive are those that grow by g or more, and each has grown by g.
    (Admission by predicted peak memory: NanoFlow, OSDI'25, §4.2.1.)
    """
    peak = num_tokens = 0
    waste = block_size - 1  # each sequence's last block may be filled by one token only
    for num_alive, (growth, tokens) in enumerate(longest_first, start=1):
        num_tokens += tokens
        num_slots = num_tokens + num_alive * (growth + waste)
        if num_slots > peak:
            peak = num_slots
    return peak


def expected_growth(num_output_tokens: int, mean_output_tokens: float, max_growth_tokens: int) -> int:
    """Output tokens still to come, as far as the mean length tells, and never more than may come.

    A sequence that has outlived the mean is expected to last for the mean once more: lengths are taken as memoryless.
    Rounded up, so that a token later it is exactly one less.
    """
    left = mean_output_tokens - num_output_tokens
    return min(max_growth_tokens, math.ceil(left if left > 0 else mean_output_tokens))
