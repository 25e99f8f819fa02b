"""Instances written down by hand, or drawn by hypothesis; numbers are those of the tables themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product

from hypothesis import strategies as st

from services.scheduler.solving.problem.cost import queue_cost
from services.scheduler.solving.problem.instance import Instance, InstanceGroup, InstanceNode, Queues
from shared.messages.requests.request_kind import RequestKind

FAR_S = 1e6


@dataclass(frozen=True)
class Load:
    """One group: what it takes a node of speed 1."""

    model: str = "a"
    work_s: float = 1.0
    due_s: float = FAR_S
    answer_s: float = 0.0
    """So long before its deadline it has to start."""
    waits: int = 1
    runs: int = 0
    home: int | None = None
    lead_s: float | None = None
    """Of as many tiny members as it takes, where it is None: then it is all of the work."""
    tail_s: float = 0.0
    rest_s: float = 0.0
    evict_s: float = 0.0
    move_s: float = 0.0
    slo: str = "batch"
    places: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Place:
    """One node."""

    model: str = "a"
    speed: float = 1.0
    load_s: float = 3.0
    ready_s: float = 0.0
    """Until its model is loaded."""
    overlap_s: float = 0.0
    is_full: bool = True


def instance(nodes: list[Place], loads: list[Load], *, may_evict: bool = True) -> Instance:
    """In the order of these lists."""
    models = sorted({load.model for load in loads} | {node.model for node in nodes})
    return Instance(
        groups=[
            InstanceGroup(
                name=f"g{number}",
                model=load.model,
                kind=RequestKind(load.model, load.slo),
                due_s=load.due_s,
                num_waiting=load.waits,
                num_running=load.runs,
                home=load.home,
                places=tuple(range(len(nodes))) if load.places is None else load.places,
            )
            for number, load in enumerate(loads)
        ],
        nodes=[_node(number, node, loads, models) for number, node in enumerate(nodes)],
        may_evict=may_evict,
    )


def _node(number: int, node: Place, loads: list[Load], models: list[str]) -> InstanceNode:
    here = [group for group, load in enumerate(loads) if load.home == number]
    return InstanceNode(
        name=f"n{number}",
        model=node.model,
        ready_s=node.ready_s,
        is_full=node.is_full,
        due_s=[load.due_s - load.answer_s / node.speed for load in loads],
        work_s=[load.work_s / node.speed for load in loads],
        lead_s=[(load.work_s if load.lead_s is None else load.lead_s) / node.speed for load in loads],
        tail_s=[load.tail_s / node.speed for load in loads],
        setup_s=[load.evict_s if load.home in (None, number) else load.move_s for load in loads],
        evict_s={group: loads[group].evict_s for group in here},
        rest_s={group: loads[group].rest_s / node.speed for group in here},
        load_s=dict.fromkeys(models, node.load_s),
        overlap_s=dict.fromkeys(models, node.overlap_s),
    )


# --- drawn -----------------------------------------------------------------------------------------------------------

SECONDS = st.integers(0, 40).map(float)


@st.composite
def instances(draw: st.DrawFn, *, max_groups: int = 12, max_nodes: int = 3) -> Instance:
    """Nodes of two speeds, of which some still load; groups of three models and two promises; some run, or a part."""
    nodes = draw(
        st.lists(
            st.builds(
                Place,
                model=st.sampled_from(["", "a", "b"]),
                speed=st.sampled_from([1.0, 2.0]),
                load_s=st.sampled_from([1.0, 5.0]),
                ready_s=st.sampled_from([0.0, 0.0, 4.0]),
                overlap_s=st.sampled_from([0.0, 2.0]),
                is_full=st.booleans(),
            ),
            min_size=1,
            max_size=max_nodes,
        )
    )
    loads = [draw(_loads(nodes)) for _ in range(draw(st.integers(0, max_groups)))]
    return instance(nodes, loads, may_evict=draw(st.booleans()))


@st.composite
def _loads(draw: st.DrawFn, nodes: list[Place]) -> Load:
    model = draw(st.sampled_from("abc"))
    homes = [number for number, node in enumerate(nodes) if node.model == model]
    runs = bool(homes) and draw(st.booleans())
    home = draw(st.sampled_from(homes)) if runs else None
    others = draw(st.sets(st.sampled_from(range(len(nodes))), min_size=1))
    return Load(
        model=model,
        work_s=draw(st.integers(1, 20).map(float)),
        due_s=draw(st.integers(-10, 40).map(float)),
        answer_s=draw(st.sampled_from([0.0, 4.0])),
        waits=draw(st.integers(0 if runs else 1, 4)),
        runs=draw(st.integers(1, 4)) if runs else 0,
        home=home,
        lead_s=draw(st.sampled_from([None, 0.0])),
        tail_s=draw(st.sampled_from([0.0, 3.0])),
        rest_s=draw(SECONDS),
        evict_s=draw(st.sampled_from([0.0, 0.5])) if runs else 0.0,
        move_s=1.5 if runs else 0.0,
        slo=draw(st.sampled_from(["interactive", "batch"])),
        places=tuple(sorted(others | ({home} if home is not None else set()))),
    )


# --- all orders ------------------------------------------------------------------------------------------------------


def keeps_rules(problem: Instance, node: int, queue: tuple[int, ...]) -> bool:
    """Whether a node may serve these groups in this order."""
    return all(node in problem.groups[group].places for group in queue) and not any(
        problem.must_precede(later, earlier, node) for earlier, later in combinations(queue, 2)
    )


def every_order(problem: Instance) -> Iterator[Queues]:
    """All queues that keep the rules, with every group once."""
    groups = range(len(problem.groups))
    for homes in product(*(problem.groups[group].places for group in groups)):
        parts = [[group for group in groups if homes[group] == node] for node in range(len(problem.nodes))]
        orders = [
            [order for order in permutations(part) if keeps_rules(problem, node, order)]
            for node, part in enumerate(parts)
        ]
        for queues in product(*orders):
            yield [list(queue) for queue in queues]


def least_of_all(problem: Instance) -> float:
    """Cost of the best of all orders."""
    return min(
        sum(queue_cost(problem, node, queue) for node, queue in enumerate(queues)) for queues in every_order(problem)
    )
