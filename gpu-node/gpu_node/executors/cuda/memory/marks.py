"""Points in a device's queue: whether it has come there, and how long it took from one to the next."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Protocol

import torch


class Mark(Protocol):
    """A point behind all that was queued before it."""

    def wait(self) -> None:
        """Until the device has come there."""
        ...

    def is_passed(self) -> bool:
        """Whether it has."""
        ...

    def since_s(self, earlier: Mark) -> float:
        """Seconds on the device from an earlier mark of the same device; both are passed."""
        ...


class EventMark:
    """An event in the current stream of a CUDA device."""

    def __init__(self) -> None:
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record()

    def wait(self) -> None:
        """Without holding the GIL."""
        self._event.synchronize()

    def is_passed(self) -> bool:
        """Asks the driver, does not wait."""
        return bool(self._event.query())

    def since_s(self, earlier: Mark) -> float:
        """By the device's own clock, in steps of half a microsecond."""
        assert isinstance(earlier, EventMark)
        return float(earlier._event.elapsed_time(self._event)) / 1e3


class ClockMark:
    """Where kernels are interpreted: they have run when they were launched."""

    def __init__(self) -> None:
        self._time_s = perf_counter()

    def wait(self) -> None:
        """There is nothing to wait for."""

    def is_passed(self) -> bool:
        """Always."""
        return True

    def since_s(self, earlier: Mark) -> float:
        """By the clock of this process."""
        assert isinstance(earlier, ClockMark)
        return self._time_s - earlier._time_s


def mark(device: torch.device) -> Mark:
    """A point behind everything that this thread has queued on the device."""
    return EventMark() if device.type == "cuda" else ClockMark()
