"""I8: each injected outage raises its alert and clears it. The alerts are the chart's own, in their own words.

What is shortened: Prometheus looks back over minutes (`[15m]`), a run lasts minutes in all. So a minute of a range is a
second here, and `for:` is left out: an alert counts as raised where its expression answers something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tests.chaos.checker.violation import Violation
from tests.chaos.history import Fault, History
from tests.chaos.promql.evaluator import Evaluator, Series
from tests.chaos.promql.parser import Node, parse

ALERTS = Path(__file__).parents[3] / "helm" / "treadle" / "alerts.yaml"
TIME_SCALE = 1 / 60
RAISED_WITHIN_S = 8.0
"""Behind the end of a fault: a scrape, the time in which it is noticed, and a machine that is late."""
CLEARED_WITHIN_S = 30.0
"""Behind the recovery: the longest shortened range (30 s for 30 min would be it, no alert here has it) and scrapes."""


@dataclass(frozen=True)
class Expected:
    """An alert that a fault must raise, if it lasts long enough to be seen."""

    alert: str
    least_s: float


EXPECTED = {
    "stop-pair": Expected("TreadleNoLeader", 8.0),
    "kill-redis": Expected("TreadleNoLeader", 3.0),
    "redis-truncated": Expected("TreadleNoLeader", 3.0),
    "stop-all-gateways": Expected("TreadleGatewayAbsent", 4.0),
    "stop-node": Expected("TreadleNodesLost", 9.0),
    "stop-all-nodes": Expected("TreadleNoNodes", 20.0),
    "redis-full": Expected("TreadleRedisMemory", 3.0),
    "disk-full": Expected("TreadleRedisDisk", 6.0),
    "bad-entries": Expected("TreadleDeadLetters", 0.0),
}
"""Faults that nobody has to act on (one process of several dies and is started again) raise nothing on purpose."""


@cache
def alert_expressions() -> dict[str, Node]:
    """Trees of the chart's alerts, by name."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    return {rule["alert"]: parse(rule["expr"]) for rule in rules}


def check(history: History) -> Iterator[Violation]:
    """Outages without an alert, and alerts that stay."""
    evaluator = Evaluator(Series(history.samples), TIME_SCALE)
    times = sorted({round(sample.at_s, 1) for sample in history.samples})
    firing: dict[str, set[float]] = {}
    for fault in history.faults:
        expected = EXPECTED.get(fault.kind)
        if expected is None or fault.skipped or fault.whole_s is None:
            continue
        if fault.ended_s - fault.began_s < expected.least_s:
            continue
        if expected.alert not in firing:
            tree = alert_expressions()[expected.alert]
            firing[expected.alert] = {at_s for at_s in times if evaluator.vector(tree, at_s)}
        yield from _of_fault(fault, expected, firing[expected.alert], times)


def _of_fault(fault: Fault, expected: Expected, firing: set[float], times: list[float]) -> Iterator[Violation]:
    assert fault.whole_s is not None
    if not any(fault.began_s <= at_s <= fault.whole_s + RAISED_WITHIN_S for at_s in firing):
        lasted_s = fault.ended_s - fault.began_s
        yield Violation("I8", f"{fault.kind} of {lasted_s:.1f} s did not raise {expected.alert}", fault.began_s)
    cleared_s = fault.whole_s + CLEARED_WITHIN_S
    quiet = [at_s for at_s in times if fault.whole_s < at_s <= cleared_s and at_s not in firing]
    if times[-1] > cleared_s and not quiet:
        yield Violation("I8", f"{expected.alert} stays, {CLEARED_WITHIN_S:g} s after {fault.kind}", cleared_s)
