"""What one input may take of the machine: CPU time, and memory beyond what the process has."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.fuzz.target import BrokenRuleError

MAX_CPU_S = 0.5
"""Of this thread, for an input of at most `mutators.MAX_BYTES`: most take microseconds, the slowest milliseconds."""
HANG_CPU_S = 20.0
"""Of `WIND_EVERY` inputs together: then the one that computes is interrupted."""
WIND_EVERY = 256
"""Inputs for which the clock is wound once: a system call for each would take longer than most of them."""
ROOM_BYTES = 512 << 20
"""Address space: a decoder that believes a length of a gigabyte fails, one that keeps a few copies does not."""

_PAGE_BYTES = resource.getpagesize()


class HangError(BaseException):
    """Interrupts an input that does not come to an end. No Exception: a decoder must not be able to catch it."""


def address_space_bytes() -> int:
    """What this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES


def resident_bytes() -> int:
    """What of it lies in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


@contextmanager
def bounded() -> Iterator[None]:
    """Within, memory ends `ROOM_BYTES` above what there is now, and a clock that is not wound interrupts."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGVTALRM, _interrupt)
    resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes() + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def wind() -> None:
    """`WIND_EVERY` inputs have time from now on, within `bounded`: elsewhere nobody would stop the clock again."""
    if signal.getsignal(signal.SIGVTALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_CPU_S)


def timed(check: Callable[[bytes], bool], data: bytes) -> bool:
    """Check one input; too much CPU time is a broken rule."""
    start_s = time.perf_counter()
    found = check(data)
    if time.perf_counter() - start_s > MAX_CPU_S:  # maybe others had the CPU: once more, by this thread's own clock
        start_s = time.thread_time()
        check(data)
        taken_s = time.thread_time() - start_s
        if taken_s > MAX_CPU_S:
            raise BrokenRuleError(f"an input of {len(data)} bytes took {taken_s:.1f} s of CPU time")
    return found


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise HangError(f"no end after {HANG_CPU_S:g} s of CPU time")
