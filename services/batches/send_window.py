"""How many requests of a batch are out at a time: as many as gateways take, found as TCP finds its window.

A gateway that has no room says so (429, 503); then half as many are out for a while. Doubling from a small number on
(slow start), then one more a round (additive increase, multiplicative decrease: Chiu and Jain, 1989), so batches that
compete for the same room come to equal parts of it.
"""

from __future__ import annotations

FIRST_SIZE = 8.0


class SendWindow:
    """The window of one batch."""

    def __init__(self, most: int) -> None:
        """``most``: the window never gets larger."""
        self._most = float(most)
        self._size = min(FIRST_SIZE, self._most)
        self._threshold = self._most  # up to it, each answer makes room for one more
        self._paused_until_s = 0.0

    @property
    def size(self) -> int:
        """Requests that may be out at a time; at least one."""
        return int(self._size)

    def opens_s(self, now: float) -> float:
        """When requests may be sent: ``now``, or at the end of a pause."""
        return max(now, self._paused_until_s)

    def answered(self) -> None:
        """An answer has come: there is room."""
        self._size += 1.0 if self._size < self._threshold else 1.0 / self._size
        self._size = min(self._size, self._most)

    def refused(self, now: float, pause_s: float) -> None:
        """A request was refused for want of room, and nothing shall be sent for ``pause_s``.

        Those that went out together are refused together, so within a pause the window is halved once.
        """
        if now >= self._paused_until_s:
            self._threshold = max(1.0, self._size / 2)
            self._size = self._threshold
        self._paused_until_s = max(self._paused_until_s, now + pause_s)
