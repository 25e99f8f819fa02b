"""The search for a pipeline (NanoFlow, OSDI'25, §4.1): stage I, stage II, and more parts where compute idles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from services.pipeline.allocation import Allocation, solve_allocation
from services.pipeline.batch import GRANULE_ROWS, DenseBatch
from services.pipeline.descent import Candidate, anneal, beginning, staggered_schedule
from services.pipeline.greedy import Task, as_schedule, play
from services.pipeline.lanes import TABLE_3, ResourceLane
from services.pipeline.layer import LayerLayout, LayerOperator, edges, layer_operators, sequential_s, split
from services.pipeline.machine import GroupPeaks
from services.pipeline.schedule import NUM_UNROLLED, Schedule
from services.pipeline.structure import Structure, sequential_schedule, solve_structure
from services.pipeline.times import LayerTimes, layer_times
from shared.config.hardware import ModelShape

LEAST_GAIN = 0.001
"""Of the layer time, by which more parts must be better."""
COPY_SHARE = 0.1
"""Of a device, with which a copy begins."""
STAGGERS = (0.4, 0.5)
"""Of a layer, by which the second half of a batch may be behind the first in the beginning."""
IDLE_SHARE = 0.01
"""Of a period in which compute may idle before more parts are tried."""


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How long a search may take."""

    num_plays: int
    """Of each beginning, by annealing."""
    structure_s: float
    allocation_s: float
    num_cuts: int
    """Places at which the batch is cut in two in the beginning, around its middle."""
    max_parts: int
    """Of one operator."""
    copies_allocation_s: float
    """Of stage II where keys and values are copied too: its program is far larger."""


FULL = SearchBudget(
    num_plays=6_000, structure_s=30.0, allocation_s=60.0, num_cuts=3, max_parts=4, copies_allocation_s=60.0
)
QUICK = SearchBudget(
    num_plays=1_200, structure_s=0.1, allocation_s=0.2, num_cuts=1, max_parts=2, copies_allocation_s=0.0
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage came to."""

    makespan_s: float
    gap: float
    solve_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """A pipeline, and what it stands beside."""

    layout: LayerLayout
    schedule: Schedule
    sequential_s: float
    nano_only_s: float
    """The parts of the pipeline one after another."""
    structure: Stage
    allocation: Stage


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A structure from which parts of the device are chosen."""

    layout: LayerLayout
    operators: list[LayerOperator]
    candidate: Candidate
    schedule: Schedule


def search(
    group: GroupPeaks, model: ModelShape, batch: DenseBatch, budget: SearchBudget, now: Callable[[], float]
) -> Found:
    """The best pipeline that is found within the budget; never one that breaks a rule of either stage.

    ``now`` is a clock, for what the stages took.
    """
    times = layer_times(group, model, batch)
    parts_of: dict[str, int] = {}
    best: Found | None = None
    while True:
        began_s = now()
        beginnings = _beginnings(group, batch, times, parts_of, budget.num_cuts)
        first = min(beginnings, key=lambda one: one.schedule.period_s)
        structure = solve_structure(first.operators, first.candidate.cuts, first.schedule, budget.structure_s)
        stage = Stage(structure.schedule.period_s, structure.gap, now() - began_s)
        cuts = _cuts(first.operators, structure.schedule)
        solved = replace(first, candidate=beginning(cuts, structure.schedule), schedule=structure.schedule)
        found = _refine([solved, *beginnings], sequential_s(_whole(group, batch, times)), model, stage, budget, now)
        if best is not None and found.schedule.period_s > best.schedule.period_s * (1 - LEAST_GAIN):
            return best
        best = found
        more = _near_bubble(structure, first.operators)
        parts_of = {**parts_of, **{name: parts_of.get(name, 2) + 1 for name in more}}
        if not more or max(parts_of.values()) > budget.max_parts:
            return best


def add_copies(
    found: Found,
    group: GroupPeaks,
    model: ModelShape,
    batch: DenseBatch,
    budget: SearchBudget,
    now: Callable[[], float],
) -> Found:
    """The same pipeline, with keys and values copied to the host as they are made (§4.2.2), and shares chosen anew.

    They are contiguous, so a layer has one copy.
    """
    times = layer_times(group, model, batch)
    operators = layer_operators(times, batch, group.num_devices, found.layout, is_offloaded=True)
    cuts = _cuts(operators, found.schedule)
    known = {(slot.part.operator, slot.part.first_row): slot for slot in found.schedule.slots}
    keys, shares = [], []
    for part in split(operators, cuts):
        slot = known.get((part.operator, part.first_row))
        start_s = slot.start_s if slot else max(one.end_s for one in known.values() if one.part.operator == "KQV")
        keys.append(start_s / found.schedule.period_s)
        shares.append(slot.share if slot else COPY_SHARE)
    start = _Beginning(found.layout, operators, Candidate(cuts, tuple(keys), tuple(shares)), found.schedule)
    allocated = replace(budget, allocation_s=budget.copies_allocation_s, num_plays=2 * budget.num_plays)
    return _refine([start], found.sequential_s, model, found.structure, allocated, now)


def _refine(
    beginnings: Sequence[_Beginning],
    sequential_s: float,
    model: ModelShape,
    stage: Stage,
    budget: SearchBudget,
    now: Callable[[], float],
) -> Found:
    """Stage II, from the best of all beginnings; one part after another where none can be repeated."""
    began_s = now()
    one = beginnings[0]
    plain = sequential_schedule(split(one.operators, one.candidate.cuts))
    tried: list[tuple[_Beginning, Candidate, Schedule]] = [(one, one.candidate, plain)]
    for one in beginnings:
        annealed = anneal(one.operators, one.candidate, TABLE_3, budget.num_plays)
        if annealed is not None:
            tried.append((one, *annealed))
    chosen, candidate, known = min(tried, key=lambda one: one[2].makespan_s(model.num_layers))
    parts = split(chosen.operators, candidate.cuts)
    depend = edges(chosen.operators, parts)
    allocation = Allocation(known, gap=1.0)
    if budget.allocation_s:
        allocation = solve_allocation(known, depend, TABLE_3, model.num_layers, budget.allocation_s)
    allocation.schedule.check(depend, TABLE_3)
    return Found(
        chosen.layout,
        allocation.schedule,
        sequential_s,
        sum(part.best_s for part in parts if part.lane is not ResourceLane.COPY),
        stage,
        Stage(allocation.schedule.makespan_s(NUM_UNROLLED), allocation.gap, now() - began_s),
    )


def _whole(group: GroupPeaks, batch: DenseBatch, times: LayerTimes) -> list[LayerOperator]:
    """What other systems run: all rows at once."""
    return layer_operators(times, batch, group.num_devices, LayerLayout(batch.num_rows))


def _beginnings(
    group: GroupPeaks, batch: DenseBatch, times: LayerTimes, parts_of: dict[str, int], num_cuts: int
) -> list[_Beginning]:
    """By where the batch is cut, what is gathered, and where decodes are; greedily, or one half behind the other."""
    middle = batch.num_rows // 2 // GRANULE_ROWS
    found = []
    for cut in (GRANULE_ROWS * (middle + number - num_cuts // 2) for number in range(num_cuts)):
        for num_gathered in (0, cut) if group.num_devices > 1 else (0,):
            for is_spread in (False, True):
                layout = LayerLayout(num_gathered, is_spread)
                operators = layer_operators(times, batch, group.num_devices, layout)
                cuts = {one.name: _places(one, cut, batch.num_rows, parts_of.get(one.name, 2)) for one in operators}
                schedules: list[Schedule | None] = [greedy_schedule(operators, cuts)]
                if is_spread and not num_gathered:
                    schedules += [staggered_schedule(operators, cuts, cut, shift) for shift in STAGGERS]
                found += [
                    _Beginning(layout, operators, beginning(cuts, schedule), schedule)
                    for schedule in schedules
                    if schedule is not None
                ]
    return found


def greedy_schedule(operators: Sequence[LayerOperator], cuts: dict[str, tuple[int, ...]]) -> Schedule:
    """Without interference: each lane takes what is ready."""
    parts = split(operators, cuts)
    depend = edges(operators, parts)
    tasks = [Task(part.lane, part.best_s, 0.0) for part in parts]
    return as_schedule(parts, tasks, depend, play(tasks, depend)) or sequential_schedule(parts)


def _places(operator: LayerOperator, cut: int, num_rows: int, num_parts: int) -> tuple[int, ...]:
    """Rows at which an operator is cut: where the batch is, and in its halves for more than two parts."""
    halves = [(0, cut), (cut, num_rows)]
    places = {cut}
    for number in range(num_parts - 2):
        low, high = halves[number % 2]
        places.add(low + (high - low) // 2 // GRANULE_ROWS * GRANULE_ROWS)
        halves[number % 2] = (low, low + (high - low) // 2)
    granules = {
        operator.first_row + round((place - operator.first_row) / GRANULE_ROWS) * GRANULE_ROWS for place in places
    }
    return tuple(sorted(place for place in granules if operator.first_row < place < operator.end_row))


def _cuts(operators: Sequence[LayerOperator], schedule: Schedule) -> dict[str, tuple[int, ...]]:
    return {
        operator.name: tuple(
            sorted(slot.part.first_row for slot in schedule.slots if slot.part.operator == operator.name)[1:]
        )
        for operator in operators
    }


def _near_bubble(structure: Structure, operators: Sequence[LayerOperator]) -> list[str]:
    """What compute waits for where it idles longest: the operators back to the product before; none if it is busy."""
    schedule = structure.schedule
    lane = [
        (slot.start_s % schedule.period_s, slot) for slot in schedule.slots if slot.part.lane is ResourceLane.COMPUTE
    ]
    lane.sort(key=lambda one: one[0])
    if schedule.idle_s(ResourceLane.COMPUTE) < IDLE_SHARE * schedule.period_s:
        return []
    cycle = [*lane, (lane[0][0] + schedule.period_s, lane[0][1])]
    _, waiting = max(
        ((after - (before + slot.duration_s)), other.part.operator)
        for (before, slot), (after, other) in pairwise(cycle)
    )
    by_name = {operator.name: operator for operator in operators}
    near, names = [], [name for name, _ in by_name[waiting].after]
    while names:
        name = names.pop()
        if name in by_name and name not in near:
            near.append(name)
            if by_name[name].lane is not ResourceLane.COMPUTE:
                names += [parent for parent, _ in by_name[name].after]
    return near
