"""How many requests of a batch are out at a time: as many as gateways take.

A gateway that has no room says so at once (429, 503), and to be refused costs next to nothing; answers take seconds. So
a batch begins with all that it may have out. A refusal halves that and pauses; each answer then makes it larger by
`GROWTH`: an eighth more a round of answers.
"""

from __future__ import annotations

GROWTH = 1 / 8


class SendWindow:
    """The window of one batch."""

    def __init__(self, most: int) -> None:
        """``most``: where it begins, and what it never exceeds."""
        self._most = float(most)
        self._size = self._most
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
        self._size = min(self._size + GROWTH, self._most)

    def refused(self, now: float, pause_s: float) -> None:
        """A request was refused for want of room, and nothing shall be sent for ``pause_s``.

        Those that went out together are refused together, so within a pause the window is halved once.
        """
        if now >= self._paused_until_s:
            self._size = max(1.0, self._size / 2)
        self._paused_until_s = max(self._paused_until_s, now + pause_s)
