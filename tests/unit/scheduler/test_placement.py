"""In which order `solve` puts groups, on problems whose answer is plain to see."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.placement import solve
from services.scheduler.policies import POLICIES
from shared.messages.nodes.placement import GroupLoad, Operations, PlacementProblem
from tests.unit.scheduler.problems import load, node, plan, running


def test_without_nodes_the_plan_is_empty() -> None:
    assert plan([], [load("g0")]).queues == {}


def test_without_groups_every_queue_is_empty() -> None:
    assert plan([node("n0"), node("n1")], []).queues == {"n0": [], "n1": []}


def test_groups_go_where_their_model_is() -> None:
    nodes = [node("n0", "a"), node("n1", "b")]
    answer = plan(nodes, [load("g0", "b"), load("g1", "a"), load("g2", "b")])
    assert answer.queues == {"n0": ["g1"], "n1": ["g0", "g2"]}
    assert answer.num_swaps == 0


def test_groups_of_one_model_stand_together() -> None:
    groups = [load("g0", "a"), load("g1", "b"), load("g2", "a"), load("g3", "b")]
    answer = plan([node(model="a")], groups)
    assert answer.queues == {"n0": ["g0", "g2", "g1", "g3"]}
    assert answer.num_swaps == 1


def test_a_deadline_breaks_a_run_of_one_model() -> None:
    groups = [
        load("g0", "a", drain_s=2, due_s=8),
        load("urgent", "b", drain_s=2, due_s=8),  # with care, 6
        load("g1", "a", drain_s=2, due_s=100),
    ]
    answer = plan([node(model="a")], groups)
    assert answer.queues == {"n0": ["g0", "urgent", "g1"]}, "behind g1 it would start at 7"
    assert (answer.num_swaps, answer.late_s) == (2, 0)


def test_a_deadline_that_can_wait_breaks_no_run() -> None:
    groups = [
        load("g0", "a", drain_s=2, due_s=8),
        load("calm", "b", drain_s=2, due_s=10),
        load("g1", "a", drain_s=2, due_s=100),
    ]
    assert plan([node(model="a")], groups).queues == {"n0": ["g0", "g1", "calm"]}


def test_what_comes_too_late_is_said() -> None:
    groups = [load("g0", drain_s=5, due_s=0), load("g1", drain_s=3, due_s=4, num_requests=3, rank=1)]
    # three requests of 1 s start at 5, 6 and 7: in the mean at 6, with care due at 3
    assert plan([node()], groups).late_s == 3 * 3


def test_within_a_kind_rank_decides() -> None:
    groups = [load("g2", due_s=30, rank=2), load("g0", due_s=99, rank=0), load("g1", due_s=20, rank=1)]
    assert plan([node()], groups).queues == {"n0": ["g0", "g1", "g2"]}


def test_of_equal_nodes_the_first_takes_the_group() -> None:
    assert plan([node("n1"), node("n0")], [load("g0")]).queues == {"n1": ["g0"], "n0": []}


def test_work_is_spread_over_nodes_of_one_model() -> None:
    answer = plan([node("n0"), node("n1")], [load(f"g{number}") for number in range(4)])
    assert sorted(map(len, answer.queues.values())) == [2, 2]


def test_a_fast_node_takes_more() -> None:
    nodes = [node("slow"), node("fast", speed=3)]
    answer = plan(nodes, [load(f"g{number}", drain_s=3) for number in range(4)])
    assert {name: len(queue) for name, queue in answer.queues.items()} == {"slow": 1, "fast": 3}


def test_a_lone_group_goes_to_the_fastest_node() -> None:
    assert plan([node("slow"), node("fast", speed=3)], [load("g0")]).queues == {"slow": [], "fast": ["g0"]}


def test_a_swap_elsewhere_beats_a_long_wait_here() -> None:
    nodes = [node("n0", "a"), node("n1", "b")]
    short = plan(nodes, [load("g0", "a", drain_s=2), load("g1", "a", rank=1)])
    long = plan(nodes, [load("g0", "a", drain_s=4), load("g1", "a", rank=1)])
    assert short.queues == {"n0": ["g0", "g1"], "n1": []}
    assert long.queues in ({"n0": ["g0"], "n1": ["g1"]}, {"n0": ["g1"], "n1": ["g0"]})


def test_a_running_group_stays_in_front_of_what_can_wait() -> None:
    groups = [load("calm", "a"), running("runs", "n0", "b", rest_s=5)]
    assert plan([node(model="b")], groups).queues == {"n0": ["runs", "calm"]}


def test_a_running_group_gives_way_to_one_that_would_be_late() -> None:
    groups = [load("urgent", "a", due_s=5, slo="interactive"), running("runs", "n0", "a", rest_s=50, kv_s=0.1)]
    assert plan([node(model="a")], groups).queues == {"n0": ["urgent", "runs"]}
    stays = plan([node(model="a")], groups, operations=Operations(evict=False))
    assert stays.queues == {"n0": ["runs", "urgent"]}


def test_a_running_group_moves_where_it_gets_done_while_another_model_has_its_node() -> None:
    groups = [load("urgent", "a", due_s=1, drain_s=20), running("runs", "n0", "a", rest_s=20, kv_s=0.1)]
    nodes = [node("n0", "a"), node("n1", "b", broken="a")]
    assert plan(nodes, groups).queues == {"n0": ["urgent", "runs"], "n1": []}
    nodes = [node("n0", "a"), node("n1", "b")]
    assert plan(
        nodes, [load("urgent", "a", due_s=1, drain_s=20, node="n0"), groups[1]], operations=Operations(balance=False)
    ).queues == {
        "n0": ["urgent"],
        "n1": ["runs"],
    }


def test_a_group_that_ran_on_a_node_that_is_gone_is_placed_anew() -> None:
    assert plan([node("n0")], [running("g0", "gone")]).queues == {"n0": ["g0"]}


@pytest.mark.parametrize(("drain_s", "kept"), [(1.0, True), (0.7, True), (0.6, False)])
def test_an_order_is_changed_for_one_that_gains_a_fifth_of_what_it_shifts(drain_s: float, kept: bool) -> None:
    """The second of two groups would end 1 s earlier in front, and the first, of 1 s, ``drain_s`` later.

    It gains ``1 - drain_s`` and shifts ``1 + drain_s``: a fifth is at 2 / 3.
    """
    groups = [load("g0", drain_s=1, slo="x"), load("g1", drain_s=drain_s, slo="y")]
    order = ["g0", "g1"] if kept else ["g1", "g0"]
    assert plan([node()], groups, queues={"n0": ["g0", "g1"]}).queues == {"n0": order}


def test_a_newcomer_finds_a_place_and_the_others_keep_theirs() -> None:
    queues = {"n0": ["g3", "g0"], "n1": ["g2", "g1"]}
    groups = [load(f"g{number}", "a", drain_s=5, slo=f"batch-{number}") for number in range(4)]
    urgent = load("urgent", "a", drain_s=1, due_s=1, slo="interactive")
    found = plan([node("n0", "a"), node("n1", "a")], [*groups, urgent], queues=queues).queues
    assert found in (
        {"n0": ["urgent", "g3", "g0"], "n1": ["g2", "g1"]},
        {"n0": ["g3", "g0"], "n1": ["urgent", "g2", "g1"]},
    )


def test_a_small_group_of_a_rare_model_is_not_passed_over_for_ever() -> None:
    """Under overload the large groups are always a little late; the small one becomes so late that it goes first."""

    def place_of_rare(overdue_s: float) -> int:
        now_s = 10_000.0
        common = [load(f"c{number}", "a", drain_s=5, due_s=now_s + number, num_requests=32) for number in range(4)]
        rare = load("rare", "b", due_s=now_s - overdue_s)
        return plan([node(model="a")], [*common, rare], now_s).queues["n0"].index("rare")

    assert [place_of_rare(overdue_s) for overdue_s in (0, 100, 5_000)] == [4, 4, 0]


# --- whatever the problem ---------------------------------------------------------------------------------------------

WAITING = st.builds(
    load,
    st.just(""),
    st.sampled_from("abc"),
    drain_s=st.integers(1, 40).map(float),
    due_s=st.integers(-50, 50).map(float),
    num_requests=st.integers(1, 8),
    node=st.sampled_from(["", "n0", "n1", "gone"]),
    slo=st.sampled_from(["interactive", "batch"]),
    rank=st.integers(0, 3).map(float),
    max_tokens=st.just(500.0),
)
RUNNING = st.builds(
    running,
    st.just(""),
    st.sampled_from(["n0", "n1", "gone"]),
    st.sampled_from("ab"),
    rest_s=st.integers(1, 40).map(float),
    due_s=st.integers(-50, 50).map(float),
    num_requests=st.integers(1, 4),
    kv_s=st.sampled_from([0.0, 0.5]),
    rank=st.integers(0, 3).map(float),
)
OPERATIONS = st.builds(
    Operations, evict=st.booleans(), balance=st.booleans(), migrate=st.booleans(), swap=st.booleans()
)


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    drawn = draw(st.lists(st.one_of(WAITING, RUNNING), max_size=10))
    groups = [_named(each, f"g{number}") for number, each in enumerate(drawn)]
    names = [group.group for group in groups]
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), min_size=2, max_size=2)))
    return PlacementProblem(
        version=1,
        now_s=0.0,
        nodes=[node("n0", "a", num_seqs=2), node("n1", "b", speed=2), node("n2", "", broken="c")],
        groups=groups,
        queues={"n0": names[: cuts[0]], "n1": names[cuts[0] : cuts[1]]},
        policy=draw(st.sampled_from(sorted(POLICIES))),
        operations=draw(OPERATIONS),
    )


def _named(group: GroupLoad, name: str) -> GroupLoad:
    return GroupLoad(**{field: getattr(group, field) for field in GroupLoad.__struct_fields__} | {"group": name})


@settings(max_examples=150, deadline=None)
@given(problems())
def test_plans_keep_the_rules_whatever_the_policy(problem: PlacementProblem) -> None:
    queues = solve(problem).queues
    assert list(queues) == [state.node for state in problem.nodes]
    groups = {group.group: group for group in problem.groups}
    node_of = {name: home for home, queue in queues.items() for name in queue}
    assert sum(map(len, queues.values())) == len(node_of), "nobody has two places"
    models = {state.node: state.model for state in problem.nodes}
    may = problem.operations
    for name, group in groups.items():
        is_live = group.node in queues
        if name not in node_of:
            assert not may.swap, "only what no node may serve is left out"
            continue
        if group.num_running and is_live and not may.migrate:
            assert node_of[name] == group.node
        if group.num_waiting and is_live and not may.balance:
            assert node_of[name] == group.node
        if not may.swap:
            assert models[node_of[name]] == group.model or node_of[name] == group.node
    for name, queue in queues.items():
        for first, second in combinations(queue, 2):
            _check_pair(groups[first], groups[second], name, may)


def _check_pair(first: GroupLoad, second: GroupLoad, node: str, may: Operations) -> None:
    """``first`` stands before ``second`` at ``node``."""
    first_runs = first.num_running > 0 and first.node == node
    second_runs = second.num_running > 0 and second.node == node
    if (first.model, first.slo) == (second.model, second.slo) and not first_runs:
        assert first.rank <= second.rank
    if not may.evict:
        assert first_runs or not second_runs


@settings(max_examples=60, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_in_which_groups_are_named_does_not_matter(problem: PlacementProblem, random: Random) -> None:
    shuffled = list(problem.groups)
    random.shuffle(shuffled)
    again = PlacementProblem(
        version=1,
        now_s=0.0,
        nodes=problem.nodes,
        groups=shuffled,
        queues=problem.queues,
        policy=problem.policy,
        operations=problem.operations,
    )
    assert solve(again) == solve(problem)


def test_a_node_whose_steps_take_a_day_spoils_no_plan() -> None:
    """What it tells can be, as far as anybody knows; HiGHS refuses the prices of such lateness."""
    groups = [running("g0", "slow", rest_s=1000.0, due_s=1.0), load("g1", due_s=1.0), load("g2", due_s=1.0)]
    queues = plan([node("n0"), node("slow", speed=1e-6)], groups).queues
    assert sorted(name for queue in queues.values() for name in queue) == ["g0", "g1", "g2"]
