"""I5: a leader within 10 s of its dependencies' return."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.checker.violation import Violation
from tests.chaos.history import Fault, History, Sample

SERVICES = ("queue-manager", "scheduler", "kv-manager")
WITHIN_S = 10.0
SAMPLED_S = 1.5
"""Leadership is looked at once a second, on a machine that may be late with it."""


def check(history: History) -> Iterator[Violation]:
    """Times without a leader that lasted longer than what was broken explains."""
    for service in SERVICES:
        for begin_s, end_s in gaps(history.samples, service):
            returned_s = returned(history.faults, begin_s, end_s)
            if end_s - returned_s > WITHIN_S + SAMPLED_S:
                yield Violation(
                    "I5", f"{service}: no leader for {end_s - returned_s:.1f} s after all it needs was back", returned_s
                )
    for fault in history.faults:
        if not fault.skipped and fault.whole_s is None:
            yield Violation("I5", f"the cluster did not serve again after {fault.kind} ({fault.detail})", fault.ended_s)


def gaps(samples: list[Sample], service: str) -> Iterator[tuple[float, float]]:
    """Times between two samples with a leader in which there were only samples without."""
    held = [
        sample.at_s
        for sample in samples
        if any(
            value and name.startswith("treadle_lease_held") and f'"{service}"' in name
            for name, value in sample.metrics.items()
        )
    ]
    if not samples or not held:
        return
    times = [*sorted(held), max(sample.at_s for sample in samples)]
    for before, after in pairwise(times):
        if after - before > WITHIN_S:
            yield before, after


def returned(faults: list[Fault], begin_s: float, end_s: float) -> float:
    """When the last thing that was broken in this time was put right."""
    ends = [fault.ended_s for fault in faults if fault.began_s < end_s and fault.ended_s > begin_s]
    return min(max([begin_s, *ends]), end_s)
