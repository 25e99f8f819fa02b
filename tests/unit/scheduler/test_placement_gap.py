"""How far `solve` is from the best order there is, on instances small enough to try every one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from statistics import fmean, median

from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.placement import LATE_WEIGHT, solve
from shared.messages import GroupLoad, NodeState, PlacementProblem
from tests.unit.scheduler.problems import total_cost

LOADS = st.builds(
    GroupLoad,
    group=st.just(""),
    model=st.sampled_from("abc"),
    deadline_s=st.integers(0, 40).map(float),
    num_requests=st.integers(1, 8),
    output_tokens=st.integers(10, 400).map(float),
    node=st.sampled_from(["n0", "n1"]),
    running=st.booleans(),
)
NODES = st.builds(
    NodeState,
    node=st.just(""),
    model=st.sampled_from(["", "a", "b"]),
    tokens_per_s=st.sampled_from([0.0, 20.0, 60.0]),
    swap_s=st.sampled_from([0.0, 1.0, 5.0]),
)


@st.composite
def problems(draw: st.DrawFn, *, max_groups: int, num_nodes: int, with_running: bool) -> PlacementProblem:
    groups = draw(st.lists(LOADS, max_size=max_groups))
    nodes = draw(st.lists(NODES, min_size=num_nodes, max_size=num_nodes))
    return PlacementProblem(
        version=1,
        now_s=0.0,
        nodes=[
            NodeState(f"n{number}", each.model, each.tokens_per_s, each.swap_s) for number, each in enumerate(nodes)
        ],
        groups=[
            GroupLoad(
                f"g{number}",
                each.model,
                each.deadline_s,
                each.num_requests,
                each.output_tokens,
                node=each.node,
                running=with_running and each.running,
            )
            for number, each in enumerate(groups)
        ],
    )


def every_order(groups: list[str]) -> Iterator[dict[str, list[str]]]:
    """All ways to put groups into the queues of two nodes."""
    for order in permutations(groups):
        for cut in range(len(order) + 1):
            yield {"n0": list(order[:cut]), "n1": list(order[cut:])}


def small_problem(random: Random) -> PlacementProblem:
    """Two nodes, two to five groups of three models; deadlines that are met, missed, or met by the best order only."""
    nodes = [
        NodeState(
            f"n{number}", random.choice(["", "a", "b"]), random.choice([0.0, 20.0, 60.0]), random.choice([0, 1, 5])
        )
        for number in range(2)
    ]
    groups = [
        GroupLoad(
            f"g{number}", random.choice("abc"), random.randint(0, 40), random.randint(1, 8), random.randint(10, 400)
        )
        for number in range(random.randint(2, 5))
    ]
    return PlacementProblem(version=1, now_s=0.0, nodes=nodes, groups=groups)


def test_the_gap_to_the_best_of_all_orders() -> None:
    """Measured: 47 % of the plans are the best there is, half are within 3 %; the mean request starts 0.02 s later.

    A ratio says little of the worst: one second of lateness where the best order has none is a factor of hundreds.
    """
    random = Random(1)
    ratios, added_late_s = [], []
    for _ in range(300):
        problem = small_problem(random)
        best = min(total_cost(problem, queues) for queues in every_order([load.group for load in problem.groups]))
        found = total_cost(problem, solve(problem).queues)
        assert found >= best - 1e-6
        ratios.append(found / best if best else 1.0 + found)
        added_late_s.append((found - best) / LATE_WEIGHT / sum(load.num_requests for load in problem.groups))
    assert sum(ratio < 1.0001 for ratio in ratios) >= 0.4 * len(ratios)
    assert median(ratios) <= 1.1
    assert fmean(added_late_s) <= 0.03
    assert max(added_late_s) <= 2.5


@settings(max_examples=100, deadline=None)
@given(problems(max_groups=12, num_nodes=2, with_running=True))
def test_every_group_has_one_place_and_running_ones_their_own(problem: PlacementProblem) -> None:
    queues = solve(problem).queues
    assert list(queues) == [node.node for node in problem.nodes]
    assert sorted(gid for queue in queues.values() for gid in queue) == sorted(load.group for load in problem.groups)
    for name, queue in queues.items():
        running = [load.group for load in problem.groups if load.running and load.node == name]
        assert set(queue[: len(running)]) == set(running)


@settings(max_examples=100, deadline=None)
@given(problems(max_groups=12, num_nodes=2, with_running=True), st.randoms(use_true_random=False))
def test_the_order_in_which_groups_are_named_does_not_matter(problem: PlacementProblem, random: Random) -> None:
    shuffled = list(problem.groups)
    random.shuffle(shuffled)
    again = PlacementProblem(version=1, now_s=0.0, nodes=problem.nodes, groups=shuffled)
    assert solve(again) == solve(problem) == solve(problem)


@settings(max_examples=100, deadline=None)
@given(problems(max_groups=12, num_nodes=2, with_running=False))
def test_groups_of_one_model_on_one_node_are_served_in_the_order_of_their_deadlines(problem: PlacementProblem) -> None:
    loads = {load.group: load for load in problem.groups}
    for queue in solve(problem).queues.values():
        for model in "abc":
            due = [(loads[gid].deadline_s, gid) for gid in queue if loads[gid].model == model]
            assert due == sorted(due)
