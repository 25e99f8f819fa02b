"""All checkers together, and what a run comes to."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from tests.chaos.checker import agreement, alerts, effects, ends, leaders, resources, secrecy, tokens
from tests.chaos.checker.violation import INVARIANTS, Violation
from tests.chaos.history import History

CHECKS = (
    ends.check,
    tokens.check,
    effects.check,
    agreement.check,
    leaders.check,
    resources.check,
    secrecy.check,
    alerts.check,
)


def judge(history: History) -> list[Violation]:
    """Everything that is wrong with a run."""
    return [violation for check in CHECKS for violation in check(history)]


def report(history: History, violations: list[Violation]) -> dict[str, Any]:
    """The result of a run."""
    done = [fault for fault in history.faults if not fault.skipped]
    recoveries: dict[str, list[float]] = {}
    for fault in done:
        if fault.whole_s is not None:
            recoveries.setdefault(fault.kind, []).append(fault.whole_s - fault.ended_s)
    everyone = [seconds for values in recoveries.values() for seconds in values]
    counts = Counter({fault.kind: 0 for fault in history.faults})  # a kind that was skipped is there with 0
    counts.update(fault.kind for fault in done)
    found = Counter(violation.invariant for violation in violations)
    return {
        "faults": {kind: counts[kind] for kind in sorted(counts)},
        "requests": len(history.requests),
        "tokens_checked": tokens.num_checked(history),
        "violations": {invariant: found[invariant] for invariant in INVARIANTS},
        "recovery_s": {
            "p50": round(median(everyone), 2) if everyone else None,
            "max": {kind: round(max(values), 2) for kind, values in sorted(recoveries.items())},
        },
    }
