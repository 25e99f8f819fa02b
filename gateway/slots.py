"""How many requests a gateway holds at once: from before the body is read until the last byte is out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway import errors


class Held:
    """What one holder has of the room."""

    def __init__(self, slots: Slots, num_slots: int, num_bytes: int) -> None:
        self._slots = slots
        self.num_slots = num_slots
        self.num_bytes = num_bytes

    def shrink(self, num_bytes: int) -> None:
        """It turns out to need fewer bytes."""
        freed = self.num_bytes - num_bytes
        assert freed >= 0
        self.num_bytes = num_bytes
        self._slots.bytes_taken -= freed


class Slots:
    """A bound on everything that grows with a request: waiting handlers by number, bodies and payloads by bytes."""

    def __init__(self, limit: int, max_bytes: int, wait_s: Callable[[], float | None]) -> None:
        """``wait_s`` predicts how long it takes until there is room, None where it cannot."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._wait_s = wait_s
        self._num_taken = 0
        self.bytes_taken = 0
        """Of bodies and payloads held now."""

    @property
    def num_taken(self) -> int:
        """Requests held now."""
        return self._num_taken

    @contextmanager
    def take(self, num_slots: int = 1, num_bytes: int = 0) -> Iterator[Held]:
        """Hold slots and bytes; `ApiError` 429 when there are too few.

        Nobody waits here: the queue is behind, not before.
        """
        if self._num_taken + num_slots > self._limit:
            raise errors.saturated(self._limit, self._wait_s())
        if self.bytes_taken + num_bytes > self._max_bytes:
            raise errors.saturated_bytes(self._max_bytes, self._wait_s())
        held = Held(self, num_slots, num_bytes)
        self._num_taken += num_slots
        self.bytes_taken += num_bytes
        try:
            yield held
        finally:
            self._num_taken -= num_slots
            self.bytes_taken -= held.num_bytes
