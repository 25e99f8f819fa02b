"""Stage II (NanoFlow, OSDI'25, §4.1.3): the part R of the device for each nano-operator, as operators slow each other.

Sizes and the order of each lane stay as they are. A mixed-integer program over one layer and its neighbours, which are
the same a period T earlier and later:

- each part has one R, ``sum_r x_r = 1``, and lasts ``D_best / P(R)``;
- parents end before children start; in a lane, each part ends before the next one starts;
- two parts of different lanes overlap, or one ends before the other starts: a binary each. Intervals of which any two
  overlap have a time in common (Helly), so where parts of two, three or four lanes all overlap, their R add up to 1 at
  most, and this at any time;
- what implies a bound at once: the sum of all R times durations is at most T;
- the time of all layers is minimised: ``(L - 1) T`` and the span of one.

Parts that are far from each other in the known schedule keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import highspy

from services.highs import Expression, SilentHighs, new_solver, proven_gap
from services.pipeline.operators.layer import Edge
from services.pipeline.schedules.schedule import PartSlot, Schedule
from shared.pipelines.lanes import Interference, ResourceLane
from shared.pipelines.periodic import NUM_UNROLLED, TOLERANCE_S

RELATIVE_GAP = 1e-4
MARGIN = 0.15
"""Of a period: parts with less between them may come to overlap."""
NUM_WINDOWS, WINDOW, NUM_ROUNDS = 6, 0.3, 2
"""Windows in a period, the share of it that each spans, and how often all are searched."""
MIN_WINDOWS_S = 5.0
"""With less time for all, windows are left out."""
MIN_RUN_S = 0.1
"""Of any one search."""
_US = 1e6
"""The program counts in microseconds."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What stage II came to."""

    schedule: Schedule
    gap: float
    """How far all layers may take longer than the least with this order, as a share of it; 1 where that is unknown."""


Values = dict[int, float]
"""By the index of a variable."""

Copy = tuple[int, int]
"""A part, and by how many layers it is later."""


@dataclass(slots=True)
class _Program:
    solver: SilentHighs
    known: Schedule
    possible: tuple[float, ...]
    """Parts of a device."""
    period: Expression
    start: list[Expression] = field(default_factory=list)
    shares: list[list[Expression]] = field(default_factory=list)
    duration: list[Expression] = field(default_factory=list)
    part: list[Expression] = field(default_factory=list)
    """R of each."""
    order: dict[tuple[int, Copy], tuple[Expression, Expression]] = field(default_factory=dict)
    """By a part and a copy of another: 1 where the first ends before the second starts, and the other way round."""
    binaries: dict[int, frozenset[int]] = field(default_factory=dict)
    """The parts that each of them is about."""

    @property
    def horizon(self) -> float:
        """Microseconds between any two times of one layer and its neighbours, at most."""
        return 4e6 * (self.known.period_s + self.known.span_s)

    def apart(self, one: int, copy: Copy) -> Expression:
        """1 where the two do not overlap; they may only where there are binaries."""
        first, second = self.order[one, copy]
        return first + second


def solve_allocation(
    known: Schedule, edges: Sequence[Edge], interference: Interference, num_layers: int, time_limit_s: float
) -> Allocation:
    """The best shares and starts with the lanes' orders of ``known``, which holds if no better is found in time.

    Feasible first: all binaries as known. Then those of the parts around one time after another, as the rest is; last
    all of them, which tells how far from the optimum the solution may be. Either gets half of the time.
    """
    program = _write(known, edges, interference, num_layers)
    everything = frozenset(range(len(known.slots)))
    best = _run(program, _known_values(program), frozenset(), MIN_RUN_S)
    if best is None:
        return Allocation(known, gap=1.0)
    windows = [window for _ in range(NUM_ROUNDS) for window in _windows(known)]
    for window in windows if time_limit_s >= MIN_WINDOWS_S else []:
        best = _run(program, best, window, time_limit_s / 2 / len(windows)) or best
    last = _run(program, best, everything, time_limit_s / 2)
    gap = 1.0 if last is None else proven_gap(program.solver)
    found = _schedule(program, last or best, interference)
    return Allocation(min(found, known, key=lambda one: one.makespan_s(num_layers)), gap)


def _windows(known: Schedule) -> list[frozenset[int]]:
    """The parts that run around each of some times of the period."""
    period_s = known.period_s
    windows = []
    for number in range(NUM_WINDOWS):
        begin_s = number * period_s / NUM_WINDOWS
        end_s = begin_s + WINDOW * period_s
        windows.append(
            frozenset(
                part
                for part, slot in enumerate(known.slots)
                if any(
                    slot.start_s + lap * period_s < end_s and begin_s < slot.end_s + lap * period_s
                    for lap in range(-NUM_UNROLLED, NUM_UNROLLED + 1)
                )
            )
        )
    return windows


def _run(program: _Program, values: Values, free: frozenset[int], time_limit_s: float) -> Values | None:
    """All variables after a search in which the binaries of ``free`` parts, and between two of them, may change."""
    solver = program.solver
    for binary, parts in program.binaries.items():
        value = round(values[binary])
        solver.changeColBounds(binary, *((0, 1) if parts <= free else (value, value)))
    if free:
        solver.setSolution(len(values), list(values), list(values.values()))
    solver.setOptionValue("time_limit", solver.getRunTime() + max(MIN_RUN_S, time_limit_s))
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return dict(enumerate(solver.getSolution().col_value))


def _write(known: Schedule, edges: Sequence[Edge], interference: Interference, num_layers: int) -> _Program:
    solver = new_solver(RELATIVE_GAP, MIN_RUN_S)
    program = _Program(solver, known, interference.shares, solver.addVariable(0.0, known.period_s * _US * (1 + 1e-6)))
    begin, end = solver.addVariable(0.0), solver.addVariable(0.0)
    for slot in known.slots:
        _add_part(program, slot, interference)
        solver.addConstr(begin <= program.start[-1])
        solver.addConstr(end >= program.start[-1] + program.duration[-1])
    energy = [
        share * slot.part.best_s * _US / interference.performance(slot.part.lane, share) * chosen
        for slot, choices in zip(known.slots, program.shares, strict=True)
        for share, chosen in zip(program.possible, choices, strict=True)
    ]
    solver.addConstr(solver.qsum(energy) <= program.period)
    for edge in edges:
        parent_end = program.start[edge.parent] + program.duration[edge.parent]
        solver.addConstr(parent_end <= program.start[edge.child] + edge.lag * program.period)
    for lane in ResourceLane:
        _keep_order(program, [number for number, slot in enumerate(known.slots) if slot.part.lane is lane])
    _add_overlaps(program)
    solver.minimize((num_layers - 1) * program.period + end - begin)
    return program


def _add_part(program: _Program, slot: PartSlot, interference: Interference) -> None:
    solver = program.solver
    choices = [solver.addBinary() for _ in program.possible]
    solver.addConstr(solver.qsum(choices) == 1)
    lasts = [slot.part.best_s * _US / interference.performance(slot.part.lane, share) for share in program.possible]
    program.binaries.update({chosen.index: frozenset({len(program.shares)}) for chosen in choices})
    program.shares.append(choices)
    program.start.append(solver.addVariable(0.0))
    program.duration.append(solver.qsum(last * chosen for last, chosen in zip(lasts, choices, strict=True)))
    program.part.append(solver.qsum(share * chosen for share, chosen in zip(program.possible, choices, strict=True)))


def _keep_order(program: _Program, lane: Sequence[int]) -> None:
    """Each part ends before the next starts, and the last before the first of the next period."""
    period_s, slots = program.known.period_s, program.known.slots
    cycle = sorted(lane, key=lambda number: _phase(slots[number].start_s, period_s))
    for one, following in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        laps = math.floor((slots[following].start_s - TOLERANCE_S) / period_s) - math.floor(
            (slots[one].start_s - TOLERANCE_S) / period_s
        )
        lag = (1 if following == cycle[0] else 0) - laps
        one_end = program.start[one] + program.duration[one]
        program.solver.addConstr(one_end <= program.start[following] + lag * program.period)


def _phase(start_s: float, period_s: float) -> float:
    return start_s - math.floor((start_s - TOLERANCE_S) / period_s) * period_s


def _add_overlaps(program: _Program) -> None:
    slots = program.known.slots
    for one, other in combinations(range(len(slots)), 2):
        if slots[one].part.lane is not slots[other].part.lane:
            _relate(program, one, other)
    near: dict[int, list[Copy]] = {}
    for one, copy in program.order:
        near.setdefault(one, []).append(copy)
    for one, copies in near.items():
        for size in range(1, len(ResourceLane)):
            for group in combinations(copies, size):
                _share_device(program, one, group)


def _relate(program: _Program, one: int, other: int) -> None:
    """With each copy of the other that is near, one of three; those before and behind these keep their place."""
    solver, period_s = program.solver, program.known.period_s
    u, v = program.known.slots[one], program.known.slots[other]
    margin_s = MARGIN * period_s
    first = math.ceil((u.start_s - margin_s - v.end_s) / period_s)
    last = math.floor((u.end_s + margin_s - v.start_s) / period_s)

    def ends(number: int, lag: int) -> tuple[Expression, Expression]:
        start = program.start[number] + lag * program.period
        return start, start + program.duration[number]

    one_start, one_end = ends(one, 0)
    for lag in range(first, last + 1):
        start, end = ends(other, lag)
        before, behind = program.order[one, (other, lag)] = solver.addBinary(), solver.addBinary()
        program.binaries.update(dict.fromkeys((before.index, behind.index), frozenset({one, other})))
        solver.addConstr(before + behind <= 1)
        solver.addConstr(one_end <= start + program.horizon * (1 - before))
        solver.addConstr(end <= one_start + program.horizon * (1 - behind))
    solver.addConstr(ends(other, first - 1)[1] <= one_start)
    solver.addConstr(one_end <= ends(other, last + 1)[0])


def _share_device(program: _Program, one: int, group: Sequence[Copy]) -> None:
    """Where all of these overlap, their R add up to 1 at most."""
    slots = program.known.slots
    lanes = {slots[number].part.lane for number in (one, *(number for number, _ in group))}
    if len(lanes) <= len(group):
        return
    apart = [program.apart(one, copy) for copy in group]
    for (first, first_lag), (second, second_lag) in combinations(group, 2):
        key = (first, (second, second_lag - first_lag))
        other_key = (second, (first, first_lag - second_lag))
        if key in program.order:
            apart.append(program.apart(*key))
        elif other_key in program.order:
            apart.append(program.apart(*other_key))
        else:
            return  # these two never overlap
    parts = [program.part[one], *(program.part[number] for number, _ in group)]
    program.solver.addConstr(program.solver.qsum(parts) <= 1 + len(group) * program.solver.qsum(apart))


def _known_values(program: _Program) -> Values:
    """Of the binaries, in the known schedule."""
    known, values = program.known, {}
    for slot, choices in zip(known.slots, program.shares, strict=True):
        for share, chosen in zip(program.possible, choices, strict=True):
            values[chosen.index] = float(math.isclose(share, slot.share))
    for (one, (other, lag)), (before, behind) in program.order.items():
        u, v = known.slots[one], known.slots[other]
        shift_s = lag * known.period_s
        is_before = u.end_s <= v.start_s + shift_s + TOLERANCE_S
        values[before.index] = float(is_before)
        values[behind.index] = float(not is_before and v.end_s + shift_s <= u.start_s + TOLERANCE_S)
    return values


def _schedule(program: _Program, values: Values, interference: Interference) -> Schedule:
    slots = []
    for slot, start, choices in zip(program.known.slots, program.start, program.shares, strict=True):
        share = max(zip(choices, program.possible, strict=True), key=lambda pair: values[pair[0].index])[1]
        duration_s = slot.part.best_s / interference.performance(slot.part.lane, share)
        slots.append(PartSlot(slot.part, values[start.index] / _US, duration_s, share))
    first_s = min(slot.start_s for slot in slots)
    moved = tuple(PartSlot(slot.part, slot.start_s - first_s, slot.duration_s, slot.share) for slot in slots)
    return Schedule(values[program.period.index] / _US, moved)
