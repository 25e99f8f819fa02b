"""A predicted cost as a table: what a regression has learnt, evaluated without the packages that fitted it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostTable:
    """Seconds by size: straight between two points, and beyond the last as between the two before."""

    sizes: tuple[float, ...]
    """Growing, two at least: tokens or blocks."""
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or len(self.sizes) != len(self.seconds):
            raise ValueError(f"{len(self.sizes)} sizes with {len(self.seconds)} costs; two of each are needed at least")
        if any(after <= before for before, after in zip(self.sizes, self.sizes[1:], strict=False)):
            raise ValueError("sizes do not grow")

    def at(self, size: float) -> float:
        """The cost at a size; never negative. O(log n)."""
        last = len(self.sizes) - 1
        right = min(max(bisect_right(self.sizes, size), 1), last)
        begin, end = self.sizes[right - 1], self.sizes[right]
        low, high = self.seconds[right - 1], self.seconds[right]
        return max(0.0, low + (high - low) * (size - begin) / (end - begin))


class LearntRatio:
    """By how much measured costs differ from a table's: refined online, a measurement at a time."""

    MEMORY = 64
    """A measurement this long ago weighs 1/e of the present one, about."""
    MAX_RATIO = 4.0
    """A measurement counts as no farther off than this: another process may have had the device."""

    def __init__(self) -> None:
        self.value = 1.0
        self._num_observed = 0

    def observe(self, measured_s: float, predicted_s: float) -> None:
        """What a table said of something, and what it took."""
        if measured_s <= 0 or predicted_s <= 0:
            return
        self._num_observed += 1
        ratio = min(max(measured_s / predicted_s, 1 / self.MAX_RATIO), self.MAX_RATIO)
        self.value += (ratio - self.value) / min(self._num_observed + 1, self.MEMORY)
