"""I6: memory, keys and descriptors return to what they were."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.agreement import KEYS
from tests.chaos.checker.violation import Violation
from tests.chaos.history import History, Resources

SHARE = 0.02
PROCESS_SLACK_BYTES = 4 << 20
"""An interpreter keeps what a burst needed once: its allocator's pools, imports that came late (measured: 2 MiB)."""
AGENT = "node-"
AGENT_SLACK_BYTES = 8 << 20
"""And images of KV that went through it (6 MiB once, of a node that handed over several while it changed its model)."""
ENGINE = "/engine"
ENGINE_SLACK_BYTES = 64 << 20
"""Beside the largest at the start: any may hold the real model at the end, with all of its KV memory touched."""
DESCRIPTOR_SLACK = 12
"""A scheduler that became the leader has its solver's worker (10); and the connections of one more transaction."""
REDIS_SLACK_BYTES = 128 << 10
"""Rates and lengths that were learnt meanwhile, and trees that do not shrink at once (measured: 41 KiB)."""


def check(history: History) -> Iterator[Violation]:
    """What is more at the end than at the start."""
    first = next((one for one in history.resources if one.when == "start"), None)
    last = next((one for one in history.resources if one.when == "end"), None)
    if first is not None and last is not None:
        yield from _grown(first, last)
    for left in history.leftovers:
        if left.where == KEYS:
            yield Violation("I6", f"keys are left: {left.what}", left.at_s)


def _grown(first: Resources, last: Resources) -> Iterator[Violation]:
    largest = max((size for name, size in first.memory_bytes.items() if name.endswith(ENGINE)), default=0)
    for name, own in first.memory_bytes.items():
        before, slack = own, AGENT_SLACK_BYTES if name.startswith(AGENT) else PROCESS_SLACK_BYTES
        if name.endswith(ENGINE):
            before, slack = largest, ENGINE_SLACK_BYTES
        after = last.memory_bytes.get(name, 0)
        if after > before * (1 + SHARE) + slack:
            yield Violation("I6", f"{name} has {after >> 20} MiB, and had {before >> 20} MiB", last.at_s)
    for name, before in first.descriptors.items():
        after = last.descriptors.get(name, 0)
        if after > before * (1 + SHARE) + DESCRIPTOR_SLACK:
            yield Violation("I6", f"{name} has {after} descriptors, and had {before}", last.at_s)
    if last.redis_bytes > first.redis_bytes * (1 + SHARE) + REDIS_SLACK_BYTES:
        yield Violation("I6", f"redis holds {last.redis_bytes} bytes, and held {first.redis_bytes}", last.at_s)
