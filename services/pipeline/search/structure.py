"""Stage I (NanoFlow, OSDI'25, §4.1.2): sizes, order and starts of nano-operators, as if none slowed another down.

A mixed-integer program over one layer that repeats each period T. Part o starts ``s_o + k_o T`` after its layer does,
with ``0 <= s_o <= T``:

- sizes are multiples of so many rows (128 in the paper), the last part of an operator has what is left; a duration is
  linear in its rows;
- two parts of one lane never overlap, nor one and the next layer's other: ``s_u + d_u <= s_v`` or the other way round,
  and ``s_u + d_u <= s_v + T`` in any case;
- parts depend where operators do and rows intersect. ``w = k_child + lag - k_parent`` periods lie between the two:
  ``s_child >= s_parent + d_parent`` for w = 0, ``s_child + T >= s_parent + d_parent`` for w > 0;
- T is minimised; it is no less than what each lane has to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import highspy

from services.highs import Expression, SilentHighs, new_solver, proven_gap
from services.pipeline.operators.layer import Cuts, Edge, LayerOperator, NanoOperator, edges, split
from services.pipeline.schedules.schedule import PartSlot, Schedule
from shared.pipelines.lanes import ResourceLane

MAX_LAPS = 3
"""Periods that a layer may take from its first start to its last end, at most."""
RELATIVE_GAP = 1e-4
_US = 1e6
"""The program counts in microseconds: numbers of about 1 to 1,000."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What stage I came to."""

    parts: tuple[NanoOperator, ...]
    edges: tuple[Edge, ...]
    schedule: Schedule
    gap: float
    """How far the period may be above the least one, as a share of it."""


@dataclass(slots=True)
class _Part:
    """One part while the program is written; rows and seconds are expressions."""

    operator: LayerOperator
    first: Expression
    end: Expression
    duration: Expression
    start: Expression
    laps: Expression


@dataclass(slots=True)
class _Program:
    solver: SilentHighs
    granule_rows: int
    period: Expression
    horizon: float
    """Microseconds; no period is longer."""
    parts: list[_Part] = field(default_factory=list)
    cuts: dict[str, list[Expression]] = field(default_factory=dict)
    apart: dict[tuple[int, int], tuple[Expression, Expression]] = field(default_factory=dict)
    """By parent and child: 1 where the parent's rows end before the child's begin, and the other way round."""
    before: dict[tuple[int, int], Expression] = field(default_factory=dict)
    """By two parts of one lane: 1 where the first has the smaller start."""

    def most_cuts(self, operator: LayerOperator) -> int:
        """Where the last cut may be, in granules: a row is left behind it."""
        return (operator.num_rows - 1) // self.granule_rows


def sequential_schedule(parts: Sequence[NanoOperator]) -> Schedule:
    """One after another: always feasible, as parts come in an order in which they could run."""
    slots, now_s = [], 0.0
    for part in parts:
        slots.append(PartSlot(part, now_s, part.best_s, 1.0))
        now_s += part.best_s
    return Schedule(now_s, tuple(slots))


def solve_structure(
    operators: Sequence[LayerOperator], cuts: Cuts, known: Schedule, granule_rows: int, time_limit_s: float
) -> Structure:
    """The shortest period with as many parts as ``cuts`` have, and ``known`` if the limit comes before any better.

    ``known`` is a schedule of ``split(operators, cuts)``.
    """
    program = _write(operators, cuts, known.period_s, granule_rows, time_limit_s)
    _fix(program, known, cuts)
    program.solver.run()
    if not _is_feasible(program):
        found_parts = split(operators, cuts)
        return Structure(tuple(found_parts), tuple(edges(operators, found_parts)), known, gap=1.0)
    values = list(program.solver.getSolution().col_value)
    _free(program)
    program.solver.setSolution(len(values), list(range(len(values))), values)
    program.solver.run()
    return _read(program, operators)


def _write(
    operators: Sequence[LayerOperator], cuts: Cuts, known_s: float, granule_rows: int, time_limit_s: float
) -> _Program:
    solver = new_solver(RELATIVE_GAP, time_limit_s)
    horizon = known_s * _US * (1 + 1e-9)
    program = _Program(solver, granule_rows, solver.addVariable(0.0, horizon), horizon)
    for operator in operators:
        _add_parts(program, operator, len(cuts.get(operator.name, ())) + 1)
    for lane in ResourceLane:
        _keep_lane(program, [number for number, part in enumerate(program.parts) if part.operator.lane is lane])
    for child, part in enumerate(program.parts):
        lags = dict(part.operator.after)
        for parent, other in enumerate(program.parts):
            if other.operator.name in lags:
                _keep_dependency(program, parent, child, lags[other.operator.name])
    solver.minimize(program.period)
    return program


def _add_parts(program: _Program, operator: LayerOperator, num_parts: int) -> None:
    solver = program.solver
    variables = [solver.addIntegral(number, program.most_cuts(operator)) for number in range(1, num_parts)]
    rows = [operator.first_row + program.granule_rows * cut for cut in variables]
    for low, high in pairwise(variables):
        solver.addConstr(high >= low + 1)
    program.cuts[operator.name] = variables
    for first, end in zip([operator.first_row, *rows], [*rows, operator.end_row], strict=True):
        duration = _US * operator.time.fixed_s + _US * operator.time.row_s * (end - first)
        start = solver.addVariable(0.0, program.horizon)
        program.solver.addConstr(start <= program.period)
        program.parts.append(_Part(operator, first, end, duration, start, solver.addIntegral(0, MAX_LAPS)))


def _keep_lane(program: _Program, numbers: Sequence[int]) -> None:
    """One after another, and all of a layer's parts before the same of the next."""
    if not numbers:
        return
    solver, parts = program.solver, program.parts
    solver.addConstr(program.period >= solver.qsum(parts[number].duration for number in numbers))
    for one, other in combinations(numbers, 2):
        u, v = parts[one], parts[other]
        first = program.before[one, other] = solver.addBinary()
        solver.addConstr(u.start + u.duration <= v.start + 2 * program.horizon * (1 - first))
        solver.addConstr(v.start + v.duration <= u.start + 2 * program.horizon * first)
        solver.addConstr(u.start + u.duration <= v.start + program.period)
        solver.addConstr(v.start + v.duration <= u.start + program.period)


def _keep_dependency(program: _Program, parent: int, child: int, lag: int) -> None:
    solver, p, c, horizon = program.solver, program.parts[parent], program.parts[child], program.horizon
    rows = max(p.operator.end_row, c.operator.end_row)
    ends_before, begins_after = program.apart[parent, child] = solver.addBinary(), solver.addBinary()
    solver.addConstr(p.end - c.first <= rows * (1 - ends_before))
    solver.addConstr(c.end - p.first <= rows * (1 - begins_after))
    independent = ends_before + begins_after
    solver.addConstr(independent <= 1)
    laps = c.laps + lag - p.laps
    solver.addConstr(laps >= -MAX_LAPS * independent)
    solver.addConstr(c.start >= p.start + p.duration - 2 * horizon * (laps + (MAX_LAPS + 1) * independent))
    solver.addConstr(c.start + program.period >= p.start + p.duration - horizon * independent)


def _fix(program: _Program, known: Schedule, cuts: Cuts) -> None:
    """What is whole in the program, as it is in ``known``."""
    solver, period_s = program.solver, known.period_s

    def fix(variable: Expression, value: int) -> None:
        solver.changeColBounds(variable.index, value, value)

    for operator in {part.operator.name: part.operator for part in program.parts}.values():
        for variable, row in zip(program.cuts[operator.name], sorted(cuts.get(operator.name, ())), strict=True):
            assert (row - operator.first_row) % program.granule_rows == 0, "sizes are multiples"
            fix(variable, (row - operator.first_row) // program.granule_rows)
    laps = [int((slot.start_s + 1e-12) // period_s) for slot in known.slots]
    phases = [slot.start_s - lap * period_s for slot, lap in zip(known.slots, laps, strict=True)]
    for part, lap in zip(program.parts, laps, strict=True):
        fix(part.laps, lap)
    for (one, other), first in program.before.items():
        fix(first, int(phases[one] < phases[other]))
    for (parent, child), (ends_before, begins_after) in program.apart.items():
        p, c = known.slots[parent].part, known.slots[child].part
        fix(ends_before, int(p.end_row <= c.first_row))
        fix(begins_after, int(c.end_row <= p.first_row))


def _free(program: _Program) -> None:
    solver = program.solver
    for operator in {part.operator.name: part.operator for part in program.parts}.values():
        for number, variable in enumerate(program.cuts[operator.name]):
            solver.changeColBounds(variable.index, number + 1, program.most_cuts(operator))
    for part in program.parts:
        solver.changeColBounds(part.laps.index, 0, MAX_LAPS)
    for binary in (*program.before.values(), *(one for pair in program.apart.values() for one in pair)):
        solver.changeColBounds(binary.index, 0, 1)


def _is_feasible(program: _Program) -> bool:
    return bool(program.solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible)


def _read(program: _Program, operators: Sequence[LayerOperator]) -> Structure:
    values = program.solver.getSolution().col_value
    period_s = values[program.period.index] / _US
    cuts = {
        operator.name: [
            operator.first_row + program.granule_rows * round(values[cut.index]) for cut in program.cuts[operator.name]
        ]
        for operator in operators
    }
    parts = split(operators, cuts)
    starts = [values[part.start.index] / _US + round(values[part.laps.index]) * period_s for part in program.parts]
    slots = tuple(PartSlot(part, start, part.best_s, 1.0) for part, start in zip(parts, starts, strict=True))
    gap = proven_gap(program.solver)
    return Structure(tuple(parts), tuple(edges(operators, parts)), Schedule(period_s, slots), gap)
