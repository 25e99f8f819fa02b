"""How many nodes the promises need: the same plan for more and for fewer nodes, judged by the cost of all plans.

A trial places what is here and what is expected to come, on so many nodes, and tells by how much promises would be
broken (`cost.late_request_s`). A node that is not there yet serves when it has started: so a promise that breaks before
is no reason to start it, and one that would break later is a reason now. Requests are expected at the rate at which
they come, until a new node would serve and `AHEAD_S` more; that they are not here yet is left out, since it matters
only where nodes would wait for them, and then there are enough.

Fewer nodes are enough if the work of the others can move to them: it waits there, with its KV handed over.

Trials are made by greedy insertion, without the search of plans: what is compared is only how late all would be.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from math import inf

from msgspec.structs import replace

from services.scheduler.solving.foresight.expected import expected
from services.scheduler.solving.methods.greedy import insert_all
from services.scheduler.solving.methods.layout import Budget, Layout
from services.scheduler.solving.problem.cost import late_request_s
from services.scheduler.solving.problem.tables import make_instance
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, PlacementProblem, PoolState
from shared.messages.requests.requests import HANDED_OVER
from shared.messages.requests.slo import UNBOUNDED_S

AHEAD_S = 15.0  # longer than from one question for sizes to the next, and an answer
GROWTH = 2  # at most so many times as many nodes at a time,
LEAST_GROWTH = 4  # or so many more, where that is more
TOLERANCE_S = 1.0  # request-seconds of lateness that are no reason for a node,
TOLERANCE = 0.05  # or this share of all: greedy insertion is no better than that
NUM_VISITS = 50_000  # of groups in one trial (see `anytime`): 0.05 s on one core

Sizes = Mapping[str, int]


def needed_nodes(problem: PlacementProblem) -> dict[str, int]:
    """Nodes of each pool. The pools that come first grow first, and shrink last. Deterministic."""
    trials = _Trials(problem)
    sizes = {pool.pool: len(pool.ready_s) for pool in problem.pools}
    grown = set()
    for pool in problem.pools:
        most = min(pool.max_nodes, max(GROWTH * sizes[pool.pool], sizes[pool.pool] + LEAST_GROWTH))
        more = trials.least(sizes, pool.pool, sizes[pool.pool], most)
        if more > sizes[pool.pool]:
            sizes[pool.pool] = more
            grown.add(pool.pool)
    for pool in reversed(problem.pools):
        if pool.pool not in grown:
            sizes[pool.pool] = trials.least(sizes, pool.pool, min(pool.min_nodes, sizes[pool.pool]), sizes[pool.pool])
    return sizes


class _Trials:
    """Lateness by sizes of the pools; each is worked out once."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        horizon_s = AHEAD_S + max(pool.start_s for pool in problem.pools)
        self._groups = [*problem.groups, *(group for kind in problem.arrivals for group in expected(kind, horizon_s))]
        self._known: dict[tuple[int, ...], float] = {}

    def least(self, sizes: Sizes, pool: str, fewest: int, most: int) -> int:
        """The least number of nodes in a pool with which promises are about as late as with ``most``."""
        late_s = self._late_s({**sizes, pool: most})
        bound_s = late_s + TOLERANCE_S + TOLERANCE * late_s
        return _least(fewest, most, lambda number: self._late_s({**sizes, pool: number}) <= bound_s)

    def _late_s(self, sizes: Sizes) -> float:
        key = tuple(sizes.values())
        if key not in self._known:
            self._known[key] = self._work_out(sizes)
        return self._known[key]

    def _work_out(self, sizes: Sizes) -> float:
        nodes = nodes_of(self._problem, sizes)
        if not self._groups:
            return 0.0
        if not nodes:
            return inf
        trial = replace(
            self._problem,
            nodes=nodes,
            groups=[part for load in self._groups for part in moved(load, nodes, self._problem.now_s)],
            operations=replace(self._problem.operations, swap=True),  # a new node is given the model that is wanted
        )
        instance = make_instance(trial)
        layout = Layout(instance, Budget(NUM_VISITS))
        insert_all(layout, range(len(instance.groups)))
        return late_request_s(instance, layout.queues)


def _least(fewest: int, most: int, is_enough: Callable[[int], bool]) -> int:
    """By bisection; ``most`` is enough."""
    while fewest < most:
        middle = (fewest + most) // 2
        if is_enough(middle):
            most = middle
        else:
            fewest = middle + 1
    return most


def nodes_of(problem: PlacementProblem, sizes: Sizes) -> list[NodeState]:
    """Those of no pool, and of each pool as many as it has then: there, starting, or started now."""
    live = {node.node: node for node in problem.nodes}
    nodes: list[NodeState] = []
    for pool in problem.pools:
        names = [f"{pool.pool}-{number}" for number in range(max(sizes[pool.pool], len(pool.ready_s)))]
        members = {name: live.pop(name, None) for name in names}
        for number, name in enumerate(names[: sizes[pool.pool]]):
            ready_s = pool.ready_s[number] if number < len(pool.ready_s) else pool.start_s
            nodes.append(members[name] or _starting(pool, name, ready_s))
    return [*live.values(), *nodes]


def _starting(pool: PoolState, name: str, ready_s: float) -> NodeState:
    """A node that serves its first model then."""
    rates = [dataclasses.replace(rate, load_s=max(rate.load_s, ready_s)) for rate in pool.fresh.rates]
    return replace(pool.fresh, node=name, model="", rates=rates, swap_s=max(pool.fresh.swap_s, ready_s))


def moved(load: GroupLoad, nodes: list[NodeState], now_s: float) -> list[GroupLoad]:
    """The group as it is, or as it would be if its node had handed it over: what ran waits, and has started in time."""
    names = {node.node for node in nodes}
    kv_at = load.kv_at if load.kv_at in names or not load.kv_at else HANDED_OVER
    if load.node in names or not load.num_running:
        return [replace(load, kv_at=kv_at)]
    ran = replace(
        load,
        group=f"{load.group} ran",
        node="",
        num_waiting=load.num_running,
        num_running=0,
        mean_prompt_tokens=0.0,
        std_prompt_tokens=0.0,
        mean_output_tokens=load.running_output_tokens / load.num_running,
        running_output_tokens=0.0,
        kv_at=HANDED_OVER,
        kept_tokens=load.kv_tokens / load.num_running,
        deadline_s=now_s + UNBOUNDED_S,
    )
    if not load.num_waiting:
        return [ran]
    waits = replace(load, node="", num_running=0, running_output_tokens=0.0, kv_tokens=0.0, kv_at="", kept_tokens=0.0)
    return [ran, waits]
