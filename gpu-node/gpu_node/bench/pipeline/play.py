"""How long lanes take, predicted: each operator at its best time, and slower while the other lane works.

NanoFlow's stage II (OSDI'25, §4.1.3): an operator takes D_best / P(R). Two lanes that work at a time have half of the
threads each, and a lane that works alone has all of them: idle threads help.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev

from gpu_node.graph.lanes import LaneQueue, ProgramLane

Span = tuple[float, float]
Kind = Hashable
"""Operators that slow, and are slowed, alike."""
_BESIDE = 0.98
"""Of an operator's time, in which the other lane has to work for the operator to count as slowed by it."""


@dataclass(frozen=True, slots=True)
class SlowedBy:
    """What operators keep of their speed while the other lane works, with half of the threads each."""

    of_kind: Mapping[Kind, float]
    """P."""
    of_lane: Mapping[ProgramLane, float]
    """For kinds that were never seen beside another. Of products P is R, by definition (§4.1.1)."""
    p: float
    """Of the kind that has most of the memory lane's time."""
    spread: float
    """Standard deviation of P over its operators."""
    num_seen: int
    """How many those are."""

    def kept(self, kind: Kind, lane: ProgramLane) -> float:
        """P of an operator."""
        return self.of_kind.get(kind, self.of_lane[lane])


def makespan_s(
    queues: Sequence[LaneQueue], best_s: Mapping[int, float], kinds: Sequence[Kind], slowed: SlowedBy
) -> float:
    """From the first operator to the last; ``best_s`` of operators alone on the device, those left out taking none."""
    places = [0] * len(queues)
    left = [0.0] * len(queues)
    running = [False] * len(queues)
    ended: set[int] = set()
    now_s = 0.0
    while True:
        has_moved = True
        while has_moved:
            has_moved = False
            for number, queue in enumerate(queues):
                if places[number] == len(queue.turns):
                    continue
                turn = queue.turns[places[number]]
                if not running[number] and ended.issuperset(turn.waits):
                    running[number], left[number] = True, best_s.get(turn.operator, 0.0)
                if running[number] and left[number] <= 1e-12:
                    ended.add(turn.operator)
                    running[number], has_moved = False, True
                    places[number] += 1
        working = [number for number in range(len(queues)) if running[number]]
        if not working:
            assert all(place == len(queue.turns) for place, queue in zip(places, queues, strict=True))
            return now_s
        speeds = dict.fromkeys(working, 1.0)
        if len(working) > 1:
            for number in working:
                queue = queues[number]
                speeds[number] = slowed.kept(kinds[queue.turns[places[number]].operator], queue.lane)
        step_s = min(left[number] / speeds[number] for number in working)
        now_s += step_s
        for number in working:
            left[number] -= step_s * speeds[number]


def lane_spans(queues: Sequence[LaneQueue], spans: Mapping[int, Span]) -> dict[int, Span]:
    """Of each operator, from when it could begin: the one before it, and those that it waits for, had ended.

    So what threads wait for one another is its own, here as where one lane runs alone.
    """
    found: dict[int, Span] = {}
    for queue in queues:
        before_s = 0.0
        for turn in queue.turns:
            if turn.operator not in spans:
                continue
            ready_s = max([before_s, *(spans[other][1] for other in turn.waits if other in spans)])
            begin_s, before_s = spans[turn.operator]
            found[turn.operator] = (min(ready_s, begin_s), before_s)
    return found


def slowed_by(
    queues: Sequence[LaneQueue], best_s: Mapping[int, float], spans: Mapping[int, Span], kinds: Sequence[Kind]
) -> SlowedBy:
    """From when operators ran in two lanes: D_best / D of those beside which the other lane worked all the time.

    Of a kind by its time, not by its operators: what makes a step longer is the long ones. ``spans`` as `lane_spans`.
    """
    seen: dict[ProgramLane, dict[Kind, list[tuple[float, float]]]] = {}
    for queue in queues:
        elsewhere = [turn.operator for one in queues if one is not queue for turn in one.turns]
        others = [spans[index] for index in elsewhere if index in spans]
        of_lane = seen.setdefault(queue.lane, defaultdict(list))
        for index in (turn.operator for turn in queue.turns):
            if index not in spans or not best_s.get(index):
                continue
            begin, end = spans[index]
            beside = sum(max(0.0, min(end, other[1]) - max(begin, other[0])) for other in others)
            if end > begin and beside >= _BESIDE * (end - begin):
                of_lane[kinds[index]].append((best_s[index], end - begin))
    memory = max(seen.get(ProgramLane.MEMORY, {}).values(), key=lambda some: sum(best for best, _ in some), default=[])
    ratios = [best / took for best, took in memory]
    return SlowedBy(
        of_kind={kind: _share(some) for one in seen.values() for kind, some in one.items()},
        of_lane={lane: _share([pair for some in one.values() for pair in some]) for lane, one in seen.items()},
        p=_share(memory),
        spread=pstdev(ratios) if len(ratios) > 1 else 0.0,
        num_seen=len(ratios),
    )


def _share(seen: Sequence[tuple[float, float]]) -> float:
    """Half of the threads, where nothing was seen."""
    return min(1.0, sum(best for best, _ in seen) / sum(took for _, took in seen)) if seen else 0.5
