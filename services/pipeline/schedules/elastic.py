"""Plays a pipeline: lanes in their orders, each part with the share of the device that it wants, or with what is free.

What `services.pipeline.search.descent` tries its changes with. A part that is ready takes less than it wants rather
than wait, down to half of it: so one share can change without all that overlaps it having to change at the same time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from services.pipeline.operators.layer import Edge, LayerOperator, NanoOperator, edges, split
from services.pipeline.schedules.greedy import LAST_LOOKED_AT, LOOKED_AT, NUM_LAYERS, Played, Task, as_schedule
from services.pipeline.schedules.schedule import Schedule
from shared.pipelines.lanes import Interference, ResourceLane

_ALIKE = (LOOKED_AT - 2, LOOKED_AT + 3)
"""Layers that have to have the same shares: those that can overlap the one that is looked at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pipeline as it is changed."""

    cuts: dict[str, tuple[int, ...]]
    keys: tuple[float, ...]
    """By part, in periods: lanes take parts in the order of these, layer after layer 1 later."""
    wanted: tuple[int, ...]
    """By part, the share of the device, in the steps of `Interference`."""


@dataclass(frozen=True, slots=True)
class PlayOutcome:
    """What became of some layers."""

    period_s: float
    """From the end of one layer that is looked at to the end of another, by layer."""
    starts_s: tuple[float, ...]
    """Of all parts, layer after layer."""
    shares: tuple[int, ...]
    """Likewise."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A layer in parts: what does not depend on orders and shares."""

    parts: list[NanoOperator]
    edges: list[Edge]
    children: list[list[int]]
    """By part, distances in the list of all parts of all layers."""
    num_parents: list[int]
    """Of all parts of all layers."""
    lasts_s: list[list[float]]
    """By part and share; share 0 does not happen."""
    lanes: list[list[int]]


class ElasticLayer:
    """Plays the layer of some operators in any cuts; works out each of these once."""

    def __init__(self, operators: Sequence[LayerOperator], interference: Interference) -> None:
        self.operators = operators
        self.interference = interference
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], _Cut] = {}

    def parts(self, candidate: Candidate) -> list[NanoOperator]:
        """Of a candidate."""
        return self._cut(candidate).parts

    def edges(self, candidate: Candidate) -> list[Edge]:
        """Between its parts."""
        return self._cut(candidate).edges

    def _cut(self, candidate: Candidate) -> _Cut:
        key = tuple(candidate.cuts.items())
        if key not in self._known:
            self._known[key] = self._work_out(candidate)
        return self._known[key]

    def _work_out(self, candidate: Candidate) -> _Cut:
        parts = split(self.operators, candidate.cuts)
        found, num = edges(self.operators, parts), len(parts)
        children: list[list[int]] = [[] for _ in parts]
        num_parents = [0] * (num * NUM_LAYERS)
        for edge in found:
            children[edge.parent].append(edge.lag * num + edge.child - edge.parent)
            for at in range(edge.lag * num + edge.child, len(num_parents), num):
                num_parents[at] += 1
        speeds = {
            lane: [self.interference.performance(lane, share) for share in self.interference.shares]
            for lane in {part.lane for part in parts}
        }
        lasts_s = [[0.0, *(part.best_s / speed for speed in speeds[part.lane])] for part in parts]
        lanes = [[number for number, part in enumerate(parts) if part.lane is lane] for lane in ResourceLane]
        return _Cut(parts, found, children, num_parents, lasts_s, [lane for lane in lanes if lane])

    def play(self, candidate: Candidate, limit_s: float = math.inf) -> PlayOutcome | None:
        """Some layers; None where lanes wait for one another for ever, or the period is longer than the limit."""
        cut, keys = self._cut(candidate), candidate.keys
        num, missing, children = len(cut.parts), list(cut.num_parents), cut.children
        queues = [_queue(lane, keys, num) for lane in cut.lanes]
        waiting = list(range(len(queues)))  # lanes in which nothing runs
        starts_s, shares = [-1.0] * len(missing), [0] * len(missing)
        free, now_s, early_s, deadline_s = self.interference.num_shares, 0.0, -1.0, math.inf
        events: list[tuple[float, int, int]] = []
        num_left = {LOOKED_AT: num, LAST_LOOKED_AT: num}
        while True:
            for number in list(waiting):
                at = queues[number][-1] if queues[number] else -1
                if at < 0 or missing[at]:
                    continue
                share = _taken(candidate.wanted[at % num], free)
                if share:
                    free -= share
                    starts_s[at], shares[at] = now_s, share
                    waiting.remove(number)
                    heapq.heappush(events, (now_s + cut.lasts_s[at % num][share], queues[number].pop(), number))
            if not events:
                return None
            now_s, at, number = heapq.heappop(events)
            if now_s > deadline_s:
                return None
            waiting.append(number)
            free += shares[at]
            for distance in children[at % num]:
                if at + distance < len(missing):
                    missing[at + distance] -= 1
            layer = at // num
            if layer in num_left:
                num_left[layer] -= 1
                if not num_left[LOOKED_AT] and early_s < 0:
                    early_s, deadline_s = now_s, now_s + limit_s * (LAST_LOOKED_AT - LOOKED_AT)
                if not num_left[LAST_LOOKED_AT]:
                    period_s = (now_s - early_s) / (LAST_LOOKED_AT - LOOKED_AT)
                    return PlayOutcome(period_s, tuple(starts_s), tuple(shares))

    def schedule(self, candidate: Candidate, outcome: PlayOutcome) -> Schedule | None:
        """With the orders and shares of the layer that is looked at; None where layers cannot all be like it."""
        cut, steps = self._cut(candidate), self.interference.shares
        num = len(cut.parts)
        shares = [outcome.shares[num * layer : num * (layer + 1)] for layer in range(*_ALIKE)]
        if len(set(shares)) > 1:
            return None
        tasks = [
            Task(part.lane, lasts_s[share], steps[share - 1])
            for part, lasts_s, share in zip(cut.parts, cut.lasts_s, shares[0], strict=True)
        ]
        layers = [outcome.starts_s[num * layer : num * (layer + 1)] for layer in range(LAST_LOOKED_AT + 1)]
        return as_schedule(cut.parts, tasks, cut.edges, Played(outcome.period_s, tuple(layers)))


def _taken(wanted: int, free: int) -> int:
    """What a part takes of what is free; nothing if that is less than half of what it wants."""
    share = wanted if wanted <= free else free
    return 0 if 2 * share < wanted else share


def _queue(lane: Sequence[int], keys: Sequence[float], num: int) -> list[int]:
    """What a lane has to do, the next at the end."""
    order = [(keys[part] + layer, layer * num + part) for layer in range(NUM_LAYERS) for part in lane]
    return [at for _, at in sorted(order, reverse=True)]
