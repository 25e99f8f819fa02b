"""How late the event loop is: what every other task of the process waits as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Histogram

LOOK_S = 0.05  # often enough that what stops the loop for longer is seen, and cheap: 20 turns a second

_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class LoopLag:
    """The histogram of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.histogram = Histogram(
            "treadle_event_loop_lag_seconds",
            "How late the event loop got to what was due, looked at 20 times a second",
            buckets=_BUCKETS_S,
            registry=registry,
        )

    async def watch(self, look_s: float = LOOK_S, clock: Callable[[], float] | None = None) -> None:
        """Measure for ever; ``clock`` in seconds, the loop's own unless told otherwise."""
        clock = clock or asyncio.get_running_loop().time
        while True:
            due_s = clock() + look_s
            await asyncio.sleep(look_s)
            self.histogram.observe(max(clock() - due_s, 0.0))
