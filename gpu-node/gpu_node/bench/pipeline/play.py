"""How long lanes take, predicted: each operator at its best time, and slower while the other lane works.

NanoFlow's stage II (OSDI'25, §4.1.3): an operator takes D_best / P(R). Two lanes that work at a time have half of the
threads each, and a lane that works alone has all of them: who is idle helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, pstdev

from gpu_node.graph.lanes import LaneQueue, ProgramLane

Span = tuple[float, float]
_BESIDE = 0.98
"""Of an operator's time, in which the other lane has to work for the operator to count as slowed by it."""


@dataclass(frozen=True, slots=True)
class SlowedBy:
    """What lanes keep of their speed while the other one works, with half of the threads each."""

    kept: Mapping[ProgramLane, float]
    """P, by lane. Of products it is R, by definition (§4.1.1)."""
    spread: float
    """Standard deviation of the memory lane's P over its operators."""
    num_seen: int
    """Operators of the memory lane that it is a median of."""


def makespan_s(queues: Sequence[LaneQueue], best_s: Mapping[int, float], slowed: SlowedBy) -> float:
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
        speeds = {number: slowed.kept[queues[number].lane] if len(working) > 1 else 1.0 for number in working}
        step_s = min(left[number] / speeds[number] for number in working)
        now_s += step_s
        for number in working:
            left[number] -= step_s * speeds[number]


def slowed_by(queues: Sequence[LaneQueue], best_s: Mapping[int, float], spans: Mapping[int, Span]) -> SlowedBy:
    """From when operators ran in two lanes: D_best / D of those beside which the other lane worked all the time."""
    kept: dict[ProgramLane, list[float]] = {}
    for queue in queues:
        elsewhere = [turn.operator for one in queues if one is not queue for turn in one.turns]
        others = [spans[index] for index in elsewhere if index in spans]
        for index in (turn.operator for turn in queue.turns):
            if index not in spans or not best_s.get(index):
                continue
            begin, end = spans[index]
            beside = sum(max(0.0, min(end, other[1]) - max(begin, other[0])) for other in others)
            if end > begin and beside >= _BESIDE * (end - begin):
                kept.setdefault(queue.lane, []).append(best_s[index] / (end - begin))
    memory = kept.get(ProgramLane.MEMORY, [])
    medians = {queue.lane: min(1.0, median(kept.get(queue.lane, [0.5]))) for queue in queues}
    return SlowedBy(medians, pstdev(memory) if len(memory) > 1 else 0.0, len(memory))
