"""Waiting for another process or thread, which says nothing when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when ``condition`` holds; fails after `PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.001)
