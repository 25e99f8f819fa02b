"""The search for a pipeline (NanoFlow, OSDI'25, §4.1): stage I, stage II, and more parts where compute idles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from services.pipeline.operators.layer import LayerLayout, LayerOperator, split
from services.pipeline.operators.setting import Setting
from services.pipeline.schedules.elastic import Candidate, ElasticLayer
from services.pipeline.schedules.schedule import Schedule
from services.pipeline.search.allocation import Allocation, solve_allocation
from services.pipeline.search.beginnings import SearchStart, beginnings, candidate
from services.pipeline.search.descent import Annealed, descend
from services.pipeline.search.structure import sequential_schedule, solve_structure
from shared.pipelines.lanes import ResourceLane
from shared.pipelines.periodic import NUM_UNROLLED

LEAST_GAIN = 0.001
"""Of the layer time, by which more parts must be better."""
COPY_SHARE = 0.1
"""Of a device, with which a copy begins."""
IDLE_SHARE = 0.01
"""Of a period in which compute may idle before more parts are tried."""


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How long a search may take."""

    num_plays: int
    """By annealing, of all beginnings together."""
    structure_s: float
    allocation_s: float
    num_cuts: int
    """Places at which the batch is cut in two in the beginning, around its middle."""
    max_parts: int
    """Of one operator, in stage I."""
    copies_allocation_s: float
    """Of stage II where keys and values are copied too: its program is far larger."""


FULL = SearchBudget(
    num_plays=200_000, structure_s=20.0, allocation_s=60.0, num_cuts=3, max_parts=4, copies_allocation_s=60.0
)
QUICK = SearchBudget(
    num_plays=8_000, structure_s=0.1, allocation_s=0.2, num_cuts=1, max_parts=2, copies_allocation_s=0.0
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


def search(setting: Setting, budget: SearchBudget, now: Callable[[], float]) -> Found:
    """The best pipeline that is found within the budget; never one that breaks a rule of either stage.

    ``now`` is a clock, for what the stages took.
    """
    parts_of: dict[str, int] = {}
    best: Found | None = None
    while True:
        began_s = now()
        tried = beginnings(setting, parts_of, budget.num_cuts)
        first = min(tried, key=lambda one: one.schedule.period_s)
        operators = first.layer.operators
        structure = solve_structure(
            operators, first.candidate.cuts, first.schedule, setting.granule_rows, budget.structure_s
        )
        stage = Stage(structure.schedule.period_s, structure.gap, now() - began_s)
        solved = candidate(_cuts(operators, structure.schedule), structure.schedule, setting.interference)
        found = _refine([replace(first, candidate=solved), *tried], setting, stage, budget, now)
        if best is not None and found.schedule.period_s > best.schedule.period_s * (1 - LEAST_GAIN):
            return best
        best = found
        more = _near_bubble(structure.schedule, operators)
        more = more or _near_bubble(found.schedule, setting.operators(found.layout))
        parts_of = {**parts_of, **{name: parts_of.get(name, 2) + 1 for name in more}}
        if not more or max(parts_of.values()) > budget.max_parts:
            return best


def add_copies(found: Found, setting: Setting, budget: SearchBudget, now: Callable[[], float]) -> Found:
    """The same pipeline, with keys and values copied to the host as they are made (§4.2.2), and shares chosen anew.

    They are contiguous, so a layer has one copy.
    """
    return _go_on(found, setting, replace(budget, allocation_s=budget.copies_allocation_s), now, is_offloaded=True)


def refine(found: Found, setting: Setting, budget: SearchBudget, now: Callable[[], float]) -> Found:
    """The same pipeline, searched on as long as `add_copies` does: what that is to be compared with."""
    refined = _go_on(found, setting, budget, now, is_offloaded=False)
    return min(found, refined, key=lambda one: one.schedule.period_s)


def _go_on(
    found: Found, setting: Setting, budget: SearchBudget, now: Callable[[], float], *, is_offloaded: bool
) -> Found:
    operators = setting.operators(found.layout, is_offloaded=is_offloaded)
    cuts = _cuts(operators, found.schedule)
    known = {(slot.part.operator, slot.part.first_row): slot for slot in found.schedule.slots}
    num_shares = setting.interference.num_shares
    keys, wanted = [], []
    for part in split(operators, cuts):
        slot = known.get((part.operator, part.first_row))
        start_s = slot.start_s if slot else max(one.end_s for one in known.values() if one.part.operator == "KQV")
        keys.append(start_s / found.schedule.period_s)
        wanted.append(round((slot.share if slot else COPY_SHARE) * num_shares))
    layer = ElasticLayer(operators, setting.interference)
    start = SearchStart(found.layout, layer, Candidate(cuts, tuple(keys), tuple(wanted)), found.schedule)
    return _refine([start], setting, found.structure, budget, now)


def _refine(
    tried: Sequence[SearchStart], setting: Setting, stage: Stage, budget: SearchBudget, now: Callable[[], float]
) -> Found:
    """Stage II, from the best of all beginnings; one part after another where none can be repeated."""
    began_s, first = now(), tried[0]
    plain = Annealed(first.layer, first.candidate, sequential_schedule(first.layer.parts(first.candidate)))
    annealed = descend([(one.layer, one.candidate) for one in tried], budget.num_plays, setting.granule_rows)
    best = min([plain, *annealed], key=lambda one: one.schedule.makespan_s(setting.num_layers))
    depend = best.layer.edges(best.candidate)
    allocation = Allocation(best.schedule, gap=1.0)
    if budget.allocation_s:
        allocation = solve_allocation(
            best.schedule, depend, setting.interference, setting.num_layers, budget.allocation_s
        )
    allocation.schedule.check(depend, setting.interference)
    return Found(
        next(one.layout for one in tried if one.layer is best.layer),
        allocation.schedule,
        setting.sequential_s,
        sum(slot.part.best_s for slot in best.schedule.slots if slot.part.lane is not ResourceLane.COPY),
        stage,
        Stage(allocation.schedule.makespan_s(NUM_UNROLLED), allocation.gap, now() - began_s),
    )


def _cuts(operators: Sequence[LayerOperator], schedule: Schedule) -> dict[str, tuple[int, ...]]:
    return {
        operator.name: tuple(
            sorted(slot.part.first_row for slot in schedule.slots if slot.part.operator == operator.name)[1:]
        )
        for operator in operators
    }


def _near_bubble(schedule: Schedule, operators: Sequence[LayerOperator]) -> list[str]:
    """What compute waits for where it idles longest: the operators back to the product before; none if it is busy."""
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
