"""What came of many schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.schedules.cluster import Cluster
from tests.schedules.fetches import schedule_setup
from tests.schedules.judge import Looks
from tests.schedules.schedule import run
from tests.schedules.setup import ALL_KINDS, Kind
from tests.schedules.transcript import Transcript


@dataclass(slots=True)
class Tally:
    """Sums over schedules, and the seeds of those that broke a promise."""

    num_schedules: int = 0
    num_events: int = 0
    num_messages: int = 0
    num_tokens: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    fetches: Counter[str] = field(default_factory=Counter)
    """Of prompts' beginnings from other nodes: what came of them."""
    failed: dict[int, str] = field(default_factory=dict)
    """By seed, which promise."""
    agreed_s: list[float] = field(default_factory=list)
    """Of each schedule with faults: from their end until all agreed."""

    def add(self, other: Tally) -> None:
        """Those of another run as well."""
        self.num_schedules += other.num_schedules
        self.num_events += other.num_events
        self.num_messages += other.num_messages
        self.num_tokens += other.num_tokens
        self.ends += other.ends
        self.faults += other.faults
        self.fetches += other.fetches
        self.failed |= other.failed
        self.agreed_s += other.agreed_s

    def report(self) -> dict[str, Any]:
        """For people and machines."""
        waits = sorted(self.agreed_s) or [0.0]
        return {
            "schedules": self.num_schedules,
            "events": self.num_events,
            "messages": self.num_messages,
            "tokens_checked": self.num_tokens,
            "requests": dict(sorted(self.ends.items())),
            "faults": dict(sorted(self.faults.items())),
            "fetches": dict(sorted(self.fetches.items())),
            "agreed_s": {"p50": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100], "max": waits[-1]},
            "failed": {str(seed): what for seed, what in sorted(self.failed.items())},
        }


def tally(seeds: range, kinds: tuple[Kind, ...] = ALL_KINDS, *, all_fetch: bool = False) -> Tally:
    """Run the schedules of these seeds; ``all_fetch``: as `schedule_setup`."""
    sums = Tally()
    for seed in seeds:
        setup = schedule_setup(seed, kinds, all_fetch=all_fetch)
        looks = Looks()
        cluster = Cluster(setup, transcript=Transcript(is_kept=False), look=looks)
        sums.num_schedules += 1
        sums.faults.update(fault.kind for fault in setup.faults)
        try:
            outcome = run(cluster)
        except Exception as error:  # whatever a core raises is a broken promise too
            sums.failed[seed] = f"{type(error).__name__}: {error}"
            continue
        finally:
            sums.num_events += cluster.agenda.num_events
            sums.num_messages += looks.num_messages
            sums.fetches.update(cluster.fetches)
        sums.ends.update(outcome.ends.values())
        sums.num_tokens += outcome.num_tokens
        if setup.faults:
            sums.agreed_s.append(outcome.agreed_s)
    return sums
