"""How many requests a gateway holds at once: from before the body is read until the last byte is out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway import errors


class Slots:
    """A bound on everything that grows with a request: bodies, prompts, token lists, waiting handlers."""

    def __init__(self, limit: int, wait_s: Callable[[], float | None]) -> None:
        """``wait_s`` predicts how long it takes until there is room, None where it cannot."""
        self._limit = limit
        self._wait_s = wait_s
        self._num_taken = 0

    @property
    def num_taken(self) -> int:
        """Requests held now."""
        return self._num_taken

    @contextmanager
    def take(self, num_slots: int = 1) -> Iterator[None]:
        """Hold slots; `ApiError` 429 when there are too few. Nobody waits here: the queue is behind, not before."""
        if self._num_taken + num_slots > self._limit:
            raise errors.saturated(self._limit, self._wait_s())
        self._num_taken += num_slots
        try:
            yield
        finally:
            self._num_taken -= num_slots
