"""QLM's mixed-integer program (SoCC'24 §6), with the cost of `solving.problem.cost`, solved by HiGHS.

``x[g,i,j] = 1``: group i stands at slot j of device g. With ``u[g,j,m] = Σ_{i of m} x[g,i,j]`` (its model):

- each group once: ``Σ_{g,j} x[g,i,j] = 1``; a slot holds one at most, and slots are filled from the front (the paper
  prints ``Σ_i x[g,i,j] = 1``, which nothing satisfies where there are more slots than groups);
- swaps: ``t[g,j,m] >= u[g,j,m] - u[g,j-1,m]``, before slot 0 the loaded model;
- times as `walk` has them: the clock, the first and the last start, and the end at each slot;
- lateness: the paper's ``p = wait - SLO <= 0`` has a price instead, one line for each piece of `late_penalty_s`.

The product of a time with x is linearised: ``begin[i] >= start[g,j] - horizon (1 - x[g,i,j])``. All times are pressed
down by the objective, so only lower bounds are needed, and all but x may be continuous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import highspy

from services.highs import Expression, new_solver
from services.scheduler.solving.methods.exact_size import horizon_s
from services.scheduler.solving.problem.cost import LATE_WEIGHT, late_pieces, total_cost
from services.scheduler.solving.problem.instance import Instance, Queues

MAX_TREE_NODES = 20_000  # of the search tree: bounds the time alike on every machine
TIME_LIMIT_S = 10.0  # for a machine that is stuck; a plan that comes later is asked for again anyway
RELATIVE_GAP = 1e-7
LEAST_FACTOR = 1e-9  # HiGHS's small_matrix_value: what is not above it is left out


@dataclass(frozen=True, slots=True)
class Solution:
    """What the program came to."""

    queues: Queues
    is_optimal: bool
    """Proven; otherwise a limit came first."""


@dataclass(slots=True)
class _Program:
    """The program while it is written; ``x`` by device, group and slot."""

    instance: Instance
    solver: highspy.Highs
    horizon_s: float
    num_slots: list[int]
    x: dict[tuple[int, int, int], Expression] = field(default_factory=dict)
    start_s: dict[tuple[int, int], Expression] = field(default_factory=dict)
    last_s: dict[tuple[int, int], Expression] = field(default_factory=dict)
    yielded: dict[tuple[int, int], Expression] = field(default_factory=dict)
    """By running group and slot of its own device: 1 where it stands behind what needed its place."""

    def groups_at(self, node: int) -> list[int]:
        """Groups that may stand at a device."""
        return [number for number, group in enumerate(self.instance.groups) if node in group.places]

    def running_at(self, node: int) -> list[int]:
        """Groups that run on a device, wherever they may go."""
        return [number for number, group in enumerate(self.instance.groups) if group.home == node]

    def time(self) -> Expression:
        """A new variable for seconds, or for a price."""
        return self.solver.addVariable(0.0)

    def share(self) -> Expression:
        """A new variable between 0 and 1."""
        return self.solver.addVariable(0.0, 1.0)

    def require(self, constraint: Expression) -> None:
        """Add a constraint. What is hardly more than no time is none: HiGHS would warn, which its package raises."""
        constraint.idxs, factors = constraint.unique_elements()
        factors[abs(factors) <= LEAST_FACTOR] = 0.0
        constraint.vals = factors
        self.solver.addConstr(constraint)


def solve_exactly(instance: Instance, known: Queues) -> Solution:
    """The order of least cost; ``known``, where the search starts, if its limits come first and nothing was better."""
    program = _write(instance)
    _start_from(program, known)
    program.solver.run()
    if program.solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Solution(known, is_optimal=False)
    best = min(known, _read(program), key=lambda queues: total_cost(instance, queues))
    return Solution(best, program.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)


def _write(instance: Instance) -> _Program:
    solver = new_solver(RELATIVE_GAP, TIME_LIMIT_S, MAX_TREE_NODES)
    num_slots = [sum(node in group.places for group in instance.groups) for node in range(len(instance.nodes))]
    program = _Program(instance, solver, horizon_s(instance), num_slots)
    _place_once(program)
    for node in range(len(instance.nodes)):
        _keep_rules(program, node)
        _keep_time(program, node)
    solver.minimize(solver.qsum(_cost(program, group) for group, facts in enumerate(instance.groups) if facts.places))
    return program


def _place_once(program: _Program) -> None:
    instance = program.instance
    for number, group in enumerate(instance.groups):
        for node in group.places:
            for slot in range(program.num_slots[node]):
                program.x[node, number, slot] = program.solver.addBinary()
        if group.places:
            here = [program.x[node, number, slot] for node in group.places for slot in range(program.num_slots[node])]
            program.require(program.solver.qsum(here) == 1)
    for node, num_slots in enumerate(program.num_slots):
        groups = program.groups_at(node)
        held = [program.solver.qsum(program.x[node, group, slot] for group in groups) for slot in range(num_slots)]
        for slot in range(num_slots):
            program.require(held[slot] <= (1 if slot == 0 else held[slot - 1]))


def _keep_rules(program: _Program, node: int) -> None:
    """Where both stand here, the first has a slot before each slot of the second (`Instance.must_precede`)."""
    slots = range(program.num_slots[node])
    total = program.solver.qsum
    for first, second in permutations(program.groups_at(node), 2):
        if program.instance.must_precede(first, second, node):
            is_here = total(program.x[node, first, slot] for slot in slots)
            for slot in slots:
                earlier = total(program.x[node, first, before] for before in range(slot))
                program.require(program.x[node, second, slot] <= earlier + 1 - is_here)


def _keep_time(program: _Program, node: int) -> None:
    """The walk along one device's slots."""
    table, total = program.instance.nodes[node], program.solver.qsum
    groups = program.groups_at(node)
    models = sorted({program.instance.groups[group].model for group in groups})
    eviction_s = _keep_evictions(program, node)
    clock_s = end_s = table.ready_s
    work_s = 0.0
    served: dict[str, Expression] = {model: float(model == table.model) for model in models}
    for slot in range(program.num_slots[node]):
        x = {group: program.x[node, group, slot] for group in groups}
        serves = {m: total(x[group] for group in groups if program.instance.groups[group].model == m) for m in models}
        swaps = {model: program.share() for model in models}
        for model in models:
            program.require(swaps[model] >= serves[model] - served[model])
        load_s = total(table.load_s[model] * swaps[model] for model in models)
        clock, start, last, end = (program.time() for _ in range(4))
        program.require(clock >= clock_s + work_s + load_s + eviction_s[slot])
        program.require(clock >= end_s + load_s - program.horizon_s * (1 - total(swaps.values())))
        if slot > 0:
            program.require(start >= program.start_s[node, slot - 1] + eviction_s[slot])
            program.require(end >= end_s)
        else:
            program.require(start >= table.ready_s + eviction_s[slot])
        overlaps = [(table.overlap_s[model], serves[model], swaps[model]) for model in models]
        program.require(start >= clock - total(overlap_s * (here - swap) for overlap_s, here, swap in overlaps))
        own_work_s = total(table.work_s[group] * x[group] for group in groups)
        program.require(last >= start)
        lead_s = total(table.lead_s[group] * x[group] for group in groups)
        program.require(last >= clock + lead_s - total(overlap_s * here for overlap_s, here, _ in overlaps))
        program.require(end >= last + _after_last(program, node, slot))
        for group in groups:
            if (group, slot) in program.yielded and program.instance.groups[group].home == node:
                goes_on = x[group] - program.yielded[group, slot]
                program.require(end >= table.rest_s[group] * goes_on)
        program.start_s[node, slot], program.last_s[node, slot] = start, last
        clock_s, end_s, served = clock, end, serves
        work_s = own_work_s + total(_setup(program, node, group, slot) for group in groups)


def _keep_evictions(program: _Program, node: int) -> list[Expression]:
    """Seconds of eviction before each slot: of what ran and had no slot yet when its place was needed."""
    table, total = program.instance.nodes[node], program.solver.qsum
    groups, running = program.groups_at(node), program.running_at(node)
    seconds: list[Expression] = []
    before: Expression = 0.0
    for slot in range(program.num_slots[node]):
        needed = program.share()
        claims = total(
            program.x[node, group, slot] for group in groups if _claims_places(program.instance, node, group)
        )
        program.require(needed >= claims)
        program.require(needed >= before)
        program.require(needed <= before + claims)
        out = {group: program.share() for group in running}
        for group in running:
            by_now = total(program.x[node, group, passed] for passed in range(slot + 1) if group in groups)
            program.require(out[group] >= needed - before - by_now)
            if group in groups:
                behind = program.yielded[group, slot] = program.share()
                program.require(behind >= program.x[node, group, slot] + before - 1)
                # exact: those that go on have an end to wait for
                program.require(behind <= program.x[node, group, slot])
                program.require(behind <= before)
        seconds.append(total(table.evict_s[group] * out[group] for group in running))
        before = needed
    return seconds


def _claims_places(instance: Instance, node: int, group: int) -> bool:
    """Whether running groups behind this one have to give way to it."""
    facts, table = instance.groups[group], instance.nodes[node]
    return (table.is_full or facts.model != table.model) and (facts.home != node or facts.num_waiting > 0)


def _setup(program: _Program, node: int, group: int, slot: int) -> Expression:
    """Bringing kept KV back, if the group stands at this slot; what goes on where it runs needs none."""
    is_home = program.instance.groups[group].home == node
    needs = program.yielded[group, slot] if is_home else program.x[node, group, slot]
    return program.instance.nodes[node].setup_s[group] * needs


def _after_last(program: _Program, node: int, slot: int) -> Expression:
    """From the last start at a slot to the end of its group; running members that go on have their own end."""
    table = program.instance.nodes[node]
    seconds: list[Expression] = []
    for group in program.groups_at(node):
        facts = program.instance.groups[group]
        starts = program.x[node, group, slot]
        if facts.home == node and not facts.num_waiting:
            starts = program.yielded[group, slot]
        seconds += [table.tail_s[group] * starts, _setup(program, node, group, slot)]
    return program.solver.qsum(seconds)


def _cost(program: _Program, group: int) -> Expression:
    """What `walk` adds for a group: of its waiting members, and of the running ones unless they go on."""
    facts, total, horizon_s = program.instance.groups[group], program.solver.qsum, program.horizon_s
    first, last = program.time(), program.time()
    slots = [(node, slot) for node in facts.places for slot in range(program.num_slots[node])]
    for node, slot in slots:
        is_off = horizon_s * (1 - program.x[node, group, slot])
        setup_s = _setup(program, node, group, slot)
        program.require(first >= program.start_s[node, slot] + setup_s - is_off)
        program.require(last >= program.last_s[node, slot] + setup_s - is_off)
    tail_s = total(program.instance.nodes[node].tail_s[group] * program.x[node, group, slot] for node, slot in slots)
    nodes = program.instance.nodes
    due_s = total(nodes[node].due_s[group] * program.x[node, group, slot] for node, slot in slots)
    late_s = 0.5 * first + 0.5 * last - due_s
    overdue_s = max(0.0, *(-nodes[node].due_s[group] for node in facts.places))
    penalty, done = program.time(), program.time()
    program.require(done >= last + tail_s)
    for slope, offset in late_pieces(horizon_s + overdue_s):
        program.require(penalty >= slope * late_s + offset)
    cost = facts.num_waiting * (LATE_WEIGHT * penalty + done)
    if not facts.num_running:
        return cost
    stops = total(
        program.yielded[group, slot] if node == facts.home else program.x[node, group, slot] for node, slot in slots
    )
    penalty_again, done_again = program.time(), program.time()
    program.require(done_again >= last + tail_s - 2 * horizon_s * (1 - stops))
    for slope, offset in late_pieces(horizon_s + overdue_s):
        program.require(penalty_again >= slope * (late_s - (horizon_s + overdue_s) * (1 - stops)) + offset)
    return cost + facts.num_running * (LATE_WEIGHT * penalty_again + done_again)


def _start_from(program: _Program, known: Queues) -> None:
    """Give HiGHS the known order; it works the times out."""
    at = {(node, group, slot) for node, queue in enumerate(known) for slot, group in enumerate(queue)}
    indices = [variable.index for variable in program.x.values()]
    values = [float(key in at) for key in program.x]
    program.solver.setSolution(len(indices), indices, values)


def _read(program: _Program) -> Queues:
    values = program.solver.getSolution().col_value
    found = sorted((node, slot, group) for (node, group, slot), x in program.x.items() if values[x.index] > 0.5)
    queues: Queues = [[] for _ in program.instance.nodes]
    for node, _, group in found:
        queues[node].append(group)
    return queues
