"""A good pipeline soon, by annealing over all that the two stages decide: shares, the order of each lane, and cuts.

Where the programs of `services.pipeline.structure` and `services.pipeline.allocation` begin, and all that ``--quick``
has time for. What is tried is played: layers one after another, each lane in its order, each part when its parents are
done and its share is free. Chance is counted, not drawn: the same layer gives the same pipeline.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from services.pipeline.batch import GRANULE_ROWS
from services.pipeline.greedy import NUM_LAYERS, Played, Task, as_schedule
from services.pipeline.lanes import SHARES, Interference, ResourceLane
from services.pipeline.layer import Edge, LayerOperator, NanoOperator, edges, split
from services.pipeline.schedule import Schedule

_FIRST = {ResourceLane.COMPUTE: 0.6, ResourceLane.MEMORY: 0.4, ResourceLane.NETWORK: 0.1, ResourceLane.COPY: 0.1}
"""Shares with which the search begins."""
HOT, COLD = 0.006, 0.0001
"""Of the period: how much worse a change may be, about, at the beginning and at the end."""
WORTH_ASKING = 0.001
"""Of the period, by which a play must be better before it is asked whether all its layers can be alike."""
_FULL = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pipeline as it is changed."""

    cuts: dict[str, tuple[int, ...]]
    keys: tuple[float, ...]
    """By part, in periods: lanes take parts in the order of these, layer after layer 1 later."""
    shares: tuple[float, ...]


class _Layer:
    """Parts and edges by cuts, worked out once."""

    def __init__(self, operators: Sequence[LayerOperator]) -> None:
        self.operators = operators
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], tuple[list[NanoOperator], list[Edge]]] = {}

    def parts(self, candidate: Candidate) -> tuple[list[NanoOperator], list[Edge]]:
        """Of a candidate."""
        key = tuple(candidate.cuts.items())
        if key not in self._known:
            found = split(self.operators, candidate.cuts)
            self._known[key] = found, edges(self.operators, found)
        return self._known[key]


class _Chance:
    """Numbers from 0 to 1 from a counter (a linear congruential generator: Knuth's MMIX)."""

    def __init__(self) -> None:
        self._state = 1

    def number(self) -> float:
        """From 0 to 1, without 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._state >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        """From 0, so many."""
        return int(self.number() * count)


def anneal(
    operators: Sequence[LayerOperator], beginning: Candidate, interference: Interference, num_plays: int
) -> tuple[Candidate, Schedule] | None:
    """The best pipeline that was met, all its layers alike; None where none of those can be repeated.

    Metropolis: what is worse by d is kept with probability exp(-d / t), and t falls from hot to cold.
    """
    layer, chance = _Layer(operators), _Chance()
    speeds = {(lane, share): interference.performance(lane, share) for lane in ResourceLane for share in SHARES}
    lasts = {lane: {share: 1 / speeds[lane, share] for share in SHARES} for lane in ResourceLane}

    def played(candidate: Candidate) -> Played | None:
        parts, found = layer.parts(candidate)
        return _play(_tasks(candidate, parts, lasts), found, candidate.keys)

    def repeated(candidate: Candidate, known: Played) -> Schedule | None:
        parts, found = layer.parts(candidate)
        return as_schedule(parts, _tasks(candidate, parts, lasts), found, known)

    best: tuple[Candidate, Schedule] | None = None
    now, now_s, asked_s = beginning, math.inf, math.inf
    for step in range(num_plays):
        other = _changed(layer, now, chance) if step else beginning
        result = played(other) if other is not now or not step else None
        if result is None:
            continue
        heat = result.period_s * HOT * (COLD / HOT) ** (step / num_plays)
        if result.period_s > now_s and chance.number() >= math.exp((now_s - result.period_s) / heat):
            continue
        now, now_s = other, result.period_s
        if now_s < asked_s * (1 - WORTH_ASKING):
            schedule = repeated(other, result)
            if schedule is not None and (best is None or schedule.period_s < best[1].period_s):
                best = other, schedule
                asked_s = min(asked_s, now_s)
    return best


def beginning(cuts: dict[str, tuple[int, ...]], schedule: Schedule) -> Candidate:
    """From a schedule without interference."""
    keys = tuple(slot.start_s / schedule.period_s for slot in schedule.slots)
    return Candidate(cuts, keys, tuple(_FIRST[slot.part.lane] for slot in schedule.slots))


def _tasks(
    candidate: Candidate, parts: Sequence[NanoOperator], lasts: dict[ResourceLane, dict[float, float]]
) -> list[Task]:
    return [
        Task(part.lane, part.best_s * lasts[part.lane][share], share)
        for part, share in zip(parts, candidate.shares, strict=True)
    ]


def _changed(layer: _Layer, now: Candidate, chance: _Chance) -> Candidate:
    """One share, one place in a lane, or one cut is another."""
    kind = chance.number()
    one = chance.below(len(now.shares))
    if kind < 0.3:
        share = SHARES[chance.below(len(SHARES))]
        return replace(now, shares=(*now.shares[:one], share, *now.shares[one + 1 :]))
    if kind < 0.6:
        parts, _ = layer.parts(now)
        other = chance.below(len(parts))
        if parts[other].lane is parts[one].lane:
            return now
        number = chance.below(len(SHARES) - 1)
        shares = list(now.shares)
        shares[one], shares[other] = SHARES[number], SHARES[len(SHARES) - 2 - number]
        return replace(now, shares=tuple(shares))
    if kind < 0.85:
        parts, _ = layer.parts(now)
        others = [n for n, part in enumerate(parts) if n != one and part.lane is parts[one].lane]
        if not others:
            return now
        other, lag = others[chance.below(len(others))], chance.below(3) - 1
        key = now.keys[other] + lag + (1e-6 if chance.number() < 0.5 else -1e-6) * (1 + chance.number())
        return replace(now, keys=(*now.keys[:one], key, *now.keys[one + 1 :]))
    return _recut(layer.operators, now, chance)


def _recut(operators: Sequence[LayerOperator], now: Candidate, chance: _Chance) -> Candidate:
    """A cut moves by a granule: of one operator, or of all that are cut there."""
    places = [(name, at) for name, cuts in now.cuts.items() for at in cuts]
    if not places:
        return now
    name, at = places[chance.below(len(places))]
    is_joint = chance.number() < 0.5
    step = GRANULE_ROWS if chance.number() < 0.5 else -GRANULE_ROWS
    cuts = dict(now.cuts)
    for operator in operators:
        if operator.name == name or (is_joint and at in cuts[operator.name]):
            moved = tuple(cut + step if cut == at else cut for cut in cuts[operator.name])
            ends = (operator.first_row, *moved, operator.end_row)
            if all(low < high for low, high in pairwise(ends)):
                cuts[operator.name] = moved
    return replace(now, cuts=cuts)


def _play(tasks: Sequence[Task], found: Sequence[Edge], keys: Sequence[float]) -> Played | None:
    """Some layers, lanes in the order of keys; None where they wait for one another for ever."""
    num_parts = len(tasks)
    children: list[list[int]] = [[] for _ in tasks]  # distances in the list of all parts of all layers
    missing = [0] * (num_parts * NUM_LAYERS)
    for edge in found:
        children[edge.parent].append(edge.lag * num_parts + edge.child - edge.parent)
        for at in range(edge.lag * num_parts + edge.child, len(missing), num_parts):
            missing[at] += 1
    lanes: dict[ResourceLane, list[tuple[float, int]]] = {}
    for number, task in enumerate(tasks):
        lane = lanes.setdefault(task.lane, [])
        lane.extend((keys[number] + layer, layer * num_parts + number) for layer in range(NUM_LAYERS))
    queues = [[at for _, at in sorted(lane, reverse=True)] for lane in lanes.values()]
    running = [False] * len(queues)
    starts, used, now_s = [-1.0] * len(missing), 0.0, 0.0
    events: list[tuple[float, int, int]] = []
    while True:
        for number, queue in enumerate(queues):
            if not queue or running[number] or missing[queue[-1]]:
                continue
            task = tasks[queue[-1] % num_parts]
            if used + task.share <= _FULL:
                at = queue.pop()
                starts[at], running[number], used = now_s, True, used + task.share
                heapq.heappush(events, (now_s + task.duration_s, at, number))
        if not events:
            break
        now_s, at, number = heapq.heappop(events)
        part = at % num_parts
        running[number], used = False, used - tasks[part].share
        for distance in children[part]:
            if at + distance < len(missing):
                missing[at + distance] -= 1
    if any(queues):
        return None
    layers = [tuple(starts[first : first + num_parts]) for first in range(0, len(starts), num_parts)]
    return Played.of(layers, tasks)


def staggered_schedule(
    operators: Sequence[LayerOperator], cuts: dict[str, tuple[int, ...]], middle_row: int, shift: float
) -> Schedule | None:
    """Without interference: the second half of the batch is ``shift`` of a layer behind the first.

    So one half can be in its attention while the other is in its feed-forward network.
    """
    parts = split(operators, cuts)
    depend = edges(operators, parts)
    starts = [0.0] * len(parts)
    for edge in sorted(depend, key=lambda edge: edge.child):
        if not edge.lag:
            starts[edge.child] = max(starts[edge.child], starts[edge.parent] + parts[edge.parent].best_s)
    chain_s = max(start + part.best_s for start, part in zip(starts, parts, strict=True))
    keys = [
        start / chain_s + (shift if part.first_row >= middle_row else 0.0)
        for start, part in zip(starts, parts, strict=True)
    ]
    tasks = [Task(part.lane, part.best_s, 0.0) for part in parts]
    played = _play(tasks, depend, keys)
    return None if played is None else as_schedule(parts, tasks, depend, played)
