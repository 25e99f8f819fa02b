"""Requests whose prefix is on its way from the store: they wait for it in line, though not for long."""

from __future__ import annotations

from collections.abc import Collection

MAX_WAIT_S = 0.25
"""A request waits so long for its blocks at the head of the line, then it begins without them."""


class AwaitedPrefixes:
    """Which blocks each request waits for, by digest. Reads begin when a request is queued, ahead of its turn."""

    def __init__(self) -> None:
        self._awaited: dict[str, set[bytes]] = {}
        self._since_s: dict[str, float] = {}  # at the head of the line
        self._is_slow = False
        self.num_late = 0
        """Requests that have begun without blocks that were on their way."""

    def expect(self, request_id: str, digests: Collection[bytes]) -> None:
        """A request that is queued would use these. None waits while the store is known to be too slow for that."""
        if digests and not self._is_slow:
            self._awaited[request_id] = set(digests)

    def arrived(self, digest: bytes, took_s: float) -> None:
        """A block is there, or will not come, so long after it was asked for."""
        if took_s <= MAX_WAIT_S:
            self._is_slow = False
        for request_id, digests in list(self._awaited.items()):
            digests.discard(digest)
            if not digests:
                self.forget(request_id)

    def is_awaited(self, request_id: str, now: float) -> bool:
        """Whether the request at the head of the line shall wait on; ``now`` in seconds."""
        if request_id not in self._awaited:
            return False
        if now - self._since_s.setdefault(request_id, now) < MAX_WAIT_S:
            return True
        self.forget(request_id)
        self._is_slow = True
        self.num_late += 1
        return False

    def forget(self, request_id: str) -> None:
        """It has begun, or is gone."""
        self._awaited.pop(request_id, None)
        self._since_s.pop(request_id, None)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for something."""
        return len(self._awaited)
