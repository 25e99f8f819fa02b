"""Requests that are over since a short while: should Redis lose the end of its log, their payloads are there again."""

from __future__ import annotations

from collections import deque

# A crash of Redis loses two seconds (`appendfsync everysec`); a replica that takes over is less than a minute behind.
RELEASED_MEMORY_S = 60.0
MAX_RELEASED = 65_536  # more of them in that time than a gateway ends; what is forgotten expires (`PAYLOAD_TTL_S`)


class Released:
    """Ids of requests, with the time at which each was over. No I/O, no clock."""

    def __init__(self) -> None:
        self._released: deque[tuple[float, str]] = deque(maxlen=MAX_RELEASED)

    def note(self, request_id: str, now: float) -> None:
        """Its payload has been deleted."""
        self._forget(now)
        self._released.append((now, request_id))

    def recent(self, now: float) -> list[str]:
        """Those of the last RELEASED_MEMORY_S."""
        self._forget(now)
        return [request_id for _, request_id in self._released]

    def _forget(self, now: float) -> None:
        while self._released and self._released[0][0] < now - RELEASED_MEMORY_S:
            self._released.popleft()
