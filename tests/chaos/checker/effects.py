"""I3: each committed effect once. What Redis kept is read from its log, in the order in which it took effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from shared.bus import streams
from shared.service.log.cluster_clock import id_order
from tests.chaos.checker.violation import Violation
from tests.chaos.history import Entry, History

GROUPS = streams.group("")
STATE = streams.state("")

Attempt = tuple[str, int]


def check(history: History) -> Iterator[Violation]:
    """Effects that were committed twice, and batches."""
    for one in history.differences:
        yield Violation("I3", f"{one.service}, batch up to {one.committed}: {one.what}")
    injected = {tuple(mark.split(" ")) for fault in history.faults for mark in fault.injected}
    for life in sorted({entry.life for entry in history.entries}):
        yield from _commits([entry for entry in history.entries if entry.life == life])
    own = [entry for entry in history.entries if (entry.key, entry.entry_id) not in injected]
    enqueued = Counter(_attempts(own, GROUPS, "enqueued"))
    evicted = Counter(_attempts(own, streams.QUEUE, "evicted"))
    for attempt, times in enqueued.items():
        if times > 1 + evicted[attempt]:
            yield Violation("I3", f"request {attempt[0]}, attempt {attempt[1]}, was enqueued {times} times")
    # what was put into a group once more by a fault may be pulled once more
    offered = Counter(_attempts(history.entries, GROUPS, "enqueued"))
    for attempt, times in Counter(_attempts(own, streams.QUEUE, "pulled")).items():
        if times > offered[attempt]:
            yield Violation(
                "I3",
                f"request {attempt[0]}, attempt {attempt[1]}, was pulled {times} times of {offered[attempt]} entries",
            )


def _commits(entries: list[Entry]) -> Iterator[Violation]:
    """The committed id of a service goes forward with every batch: a batch that is there twice has its id twice."""
    last: dict[str, str] = {}
    for entry in entries:
        if entry.verb != "HSET" or not entry.key.startswith(STATE) or not entry.value:
            continue
        before = last.get(entry.key)
        if before is not None and id_order(entry.value.encode()) <= id_order(before.encode()):
            yield Violation("I3", f"{entry.key}: committed {entry.value} behind {before}")
        last[entry.key] = entry.value


def _attempts(entries: list[Entry], prefix: str, kind: str) -> Iterator[Attempt]:
    for entry in entries:
        if entry.verb == "XADD" and entry.key.startswith(prefix) and entry.message.get("type") == kind:
            listed: Any = entry.message.get("requests", [entry.message])
            for one in listed:
                yield str(one["request_id"]), int(one.get("attempt", 0))
