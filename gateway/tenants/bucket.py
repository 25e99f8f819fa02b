"""A token bucket: so much of something within a minute, evenly in the long run, at once where it was saved up. Pure."""

from __future__ import annotations

MINUTE_S = 60.0


class TokenBucket:
    """Holds a minute's worth at most, and begins full. It may get into debt, which has to be filled up first."""

    def __init__(self, per_minute: float, now: float) -> None:
        """``now``: seconds of a clock that does not go back."""
        self.per_minute = per_minute
        self._size = max(per_minute, 1.0)
        self._level = self._size
        self._seen_s = now

    def level(self, now: float) -> float:
        """What may be taken now; negative in debt."""
        self._level = min(self._size, self._level + (now - self._seen_s) * self.per_minute / MINUTE_S)
        self._seen_s = now
        return self._level

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken, 0 where it may be now. More than it holds may be when it is full."""
        lacking = min(amount, self._size) - self.level(now)
        return max(lacking, 0.0) * MINUTE_S / self.per_minute

    def full_s(self, now: float) -> float:
        """Seconds until it is full."""
        return self.wait_s(self._size, now)

    def take(self, amount: float, now: float) -> None:
        """Take it, wherever that leads; a negative amount is given back."""
        self._level = min(self._size, self.level(now) - amount)

    def set_level(self, level: float, now: float) -> None:
        """What is left is known better elsewhere."""
        self._seen_s = now
        self._level = min(self._size, level)
