"""A schedule without search: each lane takes what is ready, until layers follow one another alike.

What the programs of `services.pipeline.search.structure` and `services.pipeline.search.allocation` start from: feasible
first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from services.pipeline.operators.layer import Edge, NanoOperator
from services.pipeline.schedules.schedule import ROUNDING, PartSlot, Schedule
from shared.pipelines.lanes import ResourceLane
from shared.pipelines.periodic import TOLERANCE_S, Gap, shortest_period

NUM_LAYERS = 8
"""Played; the first few differ from the rest, and so do the last, behind which nothing wants the device."""
LOOKED_AT, LAST_LOOKED_AT = 3, 5
"""The layer whose starts are taken, and the one to which the period is measured from there."""
_FULL = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Played:
    """What became of some layers."""

    period_s: float
    """Between the ends of the layers that are looked at, on average."""
    starts_s: tuple[tuple[float, ...], ...]
    """By layer and part."""

    @classmethod
    def of(cls, starts_s: Sequence[tuple[float, ...]], tasks: Sequence[Task]) -> Played:
        """From all starts."""
        early, late = (
            max(start + task.duration_s for start, task in zip(starts_s[layer], tasks, strict=True))
            for layer in (LOOKED_AT, LAST_LOOKED_AT)
        )
        return cls((late - early) / (LAST_LOOKED_AT - LOOKED_AT), tuple(starts_s))


@dataclass(frozen=True, slots=True)
class Task:
    """A part as it is played: how long, with how much of the device, and not before when in the first layer."""

    lane: ResourceLane
    duration_s: float
    share: float
    release_s: float = 0.0


class _Play:
    """The state of the lanes."""

    def __init__(self, tasks: Sequence[Task], edges: Sequence[Edge]) -> None:
        self.tasks = tasks
        self.children: list[list[tuple[int, int]]] = [[] for _ in tasks]
        self.missing = [[0] * len(tasks) for _ in range(NUM_LAYERS)]
        for edge in edges:
            self.children[edge.parent].append((edge.child, edge.lag))
            for layer in range(edge.lag, NUM_LAYERS):
                self.missing[layer][edge.child] += 1
        self.lanes = [lane for lane in ResourceLane if any(task.lane is lane for task in tasks)]
        self.ready: dict[ResourceLane, list[tuple[float, int, int]]] = {lane: [] for lane in self.lanes}
        self.busy = dict.fromkeys(self.lanes, False)
        self.starts_s = [[-1.0] * len(tasks) for _ in range(NUM_LAYERS)]
        self.used = 0.0
        self.events: list[tuple[float, int, int, bool]] = []  # when, layer, part, whether it ends (or may begin)
        for layer, counts in enumerate(self.missing):
            for part, count in enumerate(counts):
                if not count:
                    heapq.heappush(self.events, (tasks[part].release_s if layer == 0 else 0.0, layer, part, False))

    def run(self) -> None:
        """To the end."""
        while self.events:
            now_s = self.events[0][0]
            while self.events and self.events[0][0] <= now_s:
                _, layer, part, is_end = heapq.heappop(self.events)
                if is_end:
                    self._end(now_s, layer, part)
                else:
                    heapq.heappush(self.ready[self.tasks[part].lane], (now_s, layer, part))
            for lane in self.lanes:
                self._begin(now_s, lane)

    def _end(self, now_s: float, layer: int, part: int) -> None:
        task = self.tasks[part]
        self.busy[task.lane] = False
        self.used -= task.share
        for child, lag in self.children[part]:
            at = layer + lag
            if at >= NUM_LAYERS:
                continue
            self.missing[at][child] -= 1
            if not self.missing[at][child]:
                release_s = self.tasks[child].release_s if at == 0 else 0.0
                if release_s > now_s:
                    heapq.heappush(self.events, (release_s, at, child, False))
                else:
                    heapq.heappush(self.ready[self.tasks[child].lane], (now_s, at, child))

    def _begin(self, now_s: float, lane: ResourceLane) -> None:
        ready = self.ready[lane]
        if self.busy[lane] or not ready:
            return
        _, layer, part = ready[0]
        task = self.tasks[part]
        if self.used + task.share > _FULL:
            return
        heapq.heappop(ready)
        self.busy[lane] = True
        self.used += task.share
        self.starts_s[layer][part] = now_s
        heapq.heappush(self.events, (now_s + task.duration_s, layer, part, True))


def play(tasks: Sequence[Task], edges: Sequence[Edge]) -> Played:
    """Some layers one after another; of what is ready, each lane takes the part that was ready first."""
    state = _Play(tasks, edges)
    state.run()
    return Played.of([tuple(starts) for starts in state.starts_s], tasks)


def as_schedule(
    parts: Sequence[NanoOperator], tasks: Sequence[Task], edges: Sequence[Edge], played: Played
) -> Schedule | None:
    """A schedule whose layers are all alike, with the orders of the layer that is looked at; None where there is none.

    Parts of different lanes that do not overlap in it keep that order too, so their shares still fit.
    """
    gaps = [Gap(edge.parent, edge.child, tasks[edge.parent].duration_s, edge.lag) for edge in edges]
    times = [
        (start_s, start_s + tasks[part].duration_s, layer - LOOKED_AT, part)
        for layer, starts in enumerate(played.starts_s)
        for part, start_s in enumerate(starts)
    ]
    lanes = {lane: [time for time in times if tasks[time[3]].lane is lane] for lane in ResourceLane}
    for start_s, end_s, layer, part in times:
        if layer:
            continue
        for lane, others in lanes.items():
            if lane is tasks[part].lane or tasks[part].share:
                before = max((time for time in others if time[1] <= start_s + TOLERANCE_S), default=None)
                behind = min((time for time in others if time[0] >= end_s - TOLERANCE_S), default=None)
                if before is not None:
                    gaps.append(Gap(before[3], part, tasks[before[3]].duration_s, -before[2]))
                if behind is not None:
                    gaps.append(Gap(part, behind[3], tasks[part].duration_s, behind[2]))
    found = shortest_period(len(parts), gaps, 2 * sum(task.duration_s for task in tasks))
    if found is None:
        return None
    period_s, starts = found
    slots = [
        PartSlot(part, start, task.duration_s, task.share or 1.0)
        for part, start, task in zip(parts, starts, tasks, strict=True)
    ]
    schedule = Schedule(period_s, tuple(slots))
    is_shared = any(task.share for task in tasks)
    return schedule if not is_shared or schedule.most_used() <= 1 + ROUNDING else None
