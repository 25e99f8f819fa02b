"""Workloads from traces of lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from services.simulator.workloads.arrivals import WeightedNames, poisson
from services.simulator.workloads.request import WorkloadError, WorkloadRequest
from shared.files.length_trace import TraceLine


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of a file, and how a workload is made of them."""

    source: str
    lines: tuple[TraceLine, ...]
    """As of `shared.files.length_trace`."""

    @property
    def has_arrivals(self) -> bool:
        """Whether the file says when requests came."""
        return self.lines[0].arrival_s is not None

    @property
    def models(self) -> list[str]:
        """Names of models in the file, those of most requests first; ``""`` where it has none."""
        counts: dict[str, int] = {}
        for line in self.lines:
            counts[line.model] = counts.get(line.model, 0) + 1
        return sorted(counts, key=lambda name: (-counts[name], name))

    def rate_per_s(self) -> float:
        """Mean rate of arrivals, which the file has."""
        first, last = self.lines[0].arrival_s, self.lines[-1].arrival_s
        assert first is not None
        assert last is not None
        return (len(self.lines) - 1) / (last - first) if last > first else math.inf

    def requests(
        self,
        num_requests: int,
        random: Random,
        *,
        slos: WeightedNames,
        models: Mapping[str, str],
        rate_per_s: float | None,
        first: int = 0,
    ) -> list[WorkloadRequest]:
        """So many requests from line ``first`` on; without arrivals, a random sample, since its order means nothing.

        ``models`` maps names in the file to those that are served. ``rate_per_s`` makes the clock of the file faster or
        slower, so that its bursts stay; a file without arrivals needs it, and gets Poisson ones.
        """
        if not self.has_arrivals:
            if rate_per_s is None:
                raise WorkloadError(f"{self.source} has no arrival_s: a rate is needed")
            lines: Sequence[TraceLine] = random.choices(self.lines, k=num_requests)
            times = poisson(rate_per_s, num_requests, random)
        else:
            lines = self.lines[first : first + num_requests]
            scale = 1.0 if rate_per_s is None else self.rate_per_s() / rate_per_s
            if not math.isfinite(scale):
                raise WorkloadError(
                    f"{self.source}: all its requests come at one time, which no rate changes: say none"
                )
            known = [line.arrival_s for line in lines if line.arrival_s is not None]
            times = [(time_s - known[0]) * scale for time_s in known]
        return [
            WorkloadRequest(
                arrival_s=time_s,
                model=models[line.model],
                slo=slos.draw(random),
                prompt_tokens=line.input_tokens,
                output_tokens=line.output_tokens,
                tenant=line.client or "default",
                hash_ids=line.hash_ids,
            )
            for time_s, line in zip(times, lines, strict=True)
        ]
