"""Looks at the metrics of every process once a second."""

from __future__ import annotations

import asyncio

from tests.chaos.cluster import Cluster, Now
from tests.chaos.history import History, Sample
from tests.chaos.member import Member

EVERY_S = 1.0


class Sampler:
    """What Prometheus would have seen."""

    def __init__(self, cluster: Cluster, history: History, now: Now) -> None:
        self._cluster = cluster
        self._history = history
        self._now = now

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.gather(*(self._look(member) for member in self._cluster.members.values()))
            await asyncio.sleep(max(0.0, began + EVERY_S - loop.time()))

    async def _look(self, member: Member) -> None:
        _, text = await self._cluster.get(member, "/metrics")
        self._history.samples.append(Sample(at_s=self._now(), member=member.name, metrics=parse_metrics(text)))


def parse_metrics(text: str) -> dict[str, float]:
    """Values by name and labels as they are written, without buckets, which no alert asks for."""
    found = {}
    for line in text.splitlines():
        if line.startswith(("treadle_", "vllm:", "process_")) and "_bucket{" not in line:
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found
