"""Plans that count with those who come. A node runs one request at a time, 10 tokens a second (see `problems`)."""

from __future__ import annotations

from msgspec.structs import replace

from services.scheduler.placement import solve
from services.scheduler.solving.foresight.foresight import AHEAD_S, NUM_SLICES, foreseen
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import Arrivals, GroupLoad, ModelLoad, PlacementProblem
from tests.unit.scheduler.problems import SWAP_S, load, node, running


def problem(nodes: list[NodeState], groups: list[GroupLoad], newcomers: list[Arrivals]) -> PlacementProblem:
    return PlacementProblem(version=1, now_s=0.0, nodes=nodes, groups=groups, newcomers=newcomers)


def test_where_nobody_is_expected_a_problem_stays_as_it_is() -> None:
    asked = problem([node()], [load("g0")], [])
    found = foreseen(asked)
    assert (found.problem, found.num_here, found.members) == (asked, 1, {})


def test_those_are_expected_who_come_until_a_model_has_been_loaded_and_served_for_a_while() -> None:
    """3 s of a swap and 15 s: 18 at one a second, in three groups; of a stream that lasts 6 s, six."""
    kinds = [Arrivals(load("", "b"), 1.0), Arrivals(load("", "c"), 1.0, lasts_s=6.0)]
    groups = foreseen(problem([node()], [load("g0")], kinds)).problem.groups
    assert SWAP_S + AHEAD_S == 18.0
    assert [(group.model, group.num_waiting) for group in groups[1:]] == [("b", 6)] * NUM_SLICES + [("c", 2)] * 3
    assert [group.deadline_s - kinds[0].load.deadline_s for group in groups[1:4]] == [3.0, 9.0, 15.0]


def test_a_node_loads_a_model_for_those_who_come_though_nobody_waits_for_it() -> None:
    """Six of b come in 18 s, of 3 s each: n1 alone would have 18 s of work behind the last. n0 has nothing to do."""
    coming = [Arrivals(load("", "b", drain_s=3.0, slo="batch"), 1 / 3)]
    plan = solve(problem([node("n0", "a"), node("n1", "b")], [load("g0", "b")], coming))
    assert plan.queues == {"n0": [], "n1": ["g0"]}, "who is not here is in no queue"
    assert plan.loads == [ModelLoad("n0", "b")]
    assert plan.num_swaps == 0, "of those who are here"


def test_nothing_is_loaded_where_those_who_wait_are_of_the_models_that_are_there() -> None:
    coming = [Arrivals(load("", "a", drain_s=0.1), 0.1), Arrivals(load("", "b", drain_s=0.1), 0.1)]
    plan = solve(problem([node("n0", "a"), node("n1", "b")], [load("g0", "a")], coming))
    assert (plan.queues, plan.loads) == ({"n0": ["g0"], "n1": []}, [])


def test_what_runs_together_is_one_group_and_keeps_its_names() -> None:
    """10 and 30 tokens to come of one and three members; the mean answer of all is (10 + 3 x 20) / 4."""
    first, second = running("g0", "n0", rest_s=1.0), running("g1", "n0", rest_s=3.0, num_requests=3)
    groups = [replace(first, mean_output_tokens=10.0), replace(second, mean_output_tokens=20.0), load("g2", "b")]
    asked = replace(problem([node()], groups, [Arrivals(load("", "b"), 1.0)]), queues={"n0": ["g1", "g0"]})
    found = foreseen(asked)
    assert found.num_here == 2
    joined = found.problem.groups[0]
    assert (joined.num_running, joined.running_output_tokens, joined.mean_output_tokens) == (4, 40.0, 17.5)
    assert found.problem.queues == {"n0": ["g0"]}
    assert solve(asked).queues == {"n0": ["g0", "g1", "g2"]}
