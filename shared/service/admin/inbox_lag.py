"""How old the oldest entry of an inbox is that its service has not handled: asked of Redis, by leader and standby.

The driver knows what it has handled only. While a core hangs it handles nothing, and its process answers no scrape;
then its standby sees in Redis that entries come and the committed id stays. Ages are counted by this process's own
clock from when an entry was first seen, so that no step of Redis's clock changes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.bus import streams
from shared.service.admin.core_metrics import gauges
from shared.service.log.cluster_clock import id_order

POLL_S = 0.5  # an age is known to this; two small reads, whatever the load
LATE_S = 1.0  # an answer of Redis that is missing for longer adds to the age: nothing can be handled then
MAX_MARKS = 256  # moments that are told apart, of a service that is behind for hours

NAME = "treadle_inbox_oldest_unhandled_seconds"
DESCRIPTION = "Age of the oldest entry that is not handled, as leader and standby see it"


class InboxLag:
    """What has come and what is handled, as it was seen from time to time."""

    def __init__(self) -> None:
        self._marks: list[tuple[tuple[int, int], float]] = []
        """Newest entries that were not handled when they were seen, and when that was, in order."""
        self._seen_s: float | None = None

    def see(self, newest: bytes, committed: bytes, now_s: float) -> None:
        """Both ends of the inbox at a time; ``b"0-0"`` for an empty one."""
        last, handled = id_order(newest), id_order(committed)
        # a log that has lost its end goes on with smaller ids
        self._marks = [mark for mark in self._marks if handled < mark[0] <= last]
        if last > handled and (not self._marks or self._marks[-1][0] < last):
            self._marks.append((last, now_s))
        if len(self._marks) > MAX_MARKS:
            self._marks = self._marks[::2]
        self._seen_s = now_s

    def age_s(self, now_s: float) -> float | None:
        """Of the oldest entry that is not handled, 0.0 where all are; None before the first look."""
        if self._seen_s is None:
            return None
        waited_s = self._seen_s - self._marks[0][1] if self._marks else 0.0
        missing_s = now_s - self._seen_s
        return waited_s + (missing_s if missing_s > LATE_S else 0.0)


async def watch(redis: Redis, service: str, inbox: str, lag: InboxLag) -> None:
    """Look at a service's inbox until cancelled, whichever process leads. Redis may be away: that counts as waiting."""
    while True:
        with suppress(RedisError, OSError):  # the driver's log has it, and the age grows
            lag.see(*await ends(redis, service, inbox), time.monotonic())
        await asyncio.sleep(POLL_S)


async def ends(redis: Redis, service: str, inbox: str) -> tuple[bytes, bytes]:
    """Ids of the newest entry of an inbox and of the newest that its service has handled; ``b"0-0"`` for none.

    An inbox that was trimmed to nothing ends with what was handled. That is asked last: it covers what was there then.
    """
    newest: Any = await redis.xrevrange(inbox, count=1)
    committed: Any = await redis.hget(streams.state(service), "committed")
    return newest[0][0] if newest else committed or b"0-0", committed or b"0-0"


class InboxLagCollector(Collector):
    """The metric, as of the scrape."""

    def __init__(self, service: str, lag: InboxLag, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._lag = lag
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        """No sample before Redis has answered once."""
        age_s = self._lag.age_s(self._clock())
        return [gauges(NAME, DESCRIPTION, ["service"], [] if age_s is None else [([self._service], age_s)])]
