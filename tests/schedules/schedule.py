"""One schedule, from its seed to its judgement."""

from __future__ import annotations

from dataclasses import dataclass

from tests.schedules.cluster import Cluster
from tests.schedules.judge import AGREE_S, DETECT_S, SERVED_S, disagreements, must
from tests.schedules.setup import CALM_S

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a schedule in which all promises were kept."""

    agreed_s: float
    """From the end of the faults until everybody agreed."""
    served_s: float
    """Until the last client had its answer."""
    ends: dict[str, str]
    num_tokens: int


def run(cluster: Cluster) -> Outcome:
    """Faults, then peace; `BrokenPromiseError` where a promise is broken."""
    try:
        return _run(cluster)
    finally:
        cluster.agenda.close()


def _run(cluster: Cluster) -> Outcome:
    agenda = cluster.agenda
    agenda.run_until(CALM_S)
    agreed_s = _agree(cluster, AGREE_S + DETECT_S, "15 s after the faults")
    while cluster.ledger.unended:
        must(agenda.now < CALM_S + SERVED_S, f"still not answered: {cluster.ledger.unended}")
        agenda.run_until(agenda.now + POLL_S)
    served_s = agenda.now - CALM_S
    _agree(cluster, AGREE_S, "15 s after the last answer")
    return Outcome(agreed_s, served_s, dict(cluster.ledger.ends), cluster.ledger.num_tokens)


def _agree(cluster: Cluster, limit_s: float, when: str) -> float:
    """Everybody agrees, at some time before the limit; how long it took."""
    agenda = cluster.agenda
    begin_s = agenda.now
    while found := disagreements(cluster):
        must(agenda.now < begin_s + limit_s, f"{when} there is no agreement on: " + "; ".join(found))
        agenda.run_until(agenda.now + POLL_S)
    return agenda.now - begin_s
