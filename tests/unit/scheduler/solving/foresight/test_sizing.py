"""How many nodes the promises need. A node runs one request at a time, 10 tokens a second (see `problems`)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from services.scheduler.solving.foresight.expected import expected
from services.scheduler.solving.foresight.sizing import AHEAD_S, moved, needed_nodes, nodes_of
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import Arrivals, GroupLoad, PlacementProblem, PoolState
from shared.messages.requests.requests import HANDED_OVER
from tests.unit.scheduler.problems import SWAP_S, load, node, running

START_S = 10.0


def pool(
    name: str = "p", *, ready_s: list[float], least: int = 0, most: int = 9, start_s: float = START_S
) -> PoolState:
    return PoolState(name, least, most, ready_s, start_s, replace(node(f"{name}-x", ""), swap_s=0.0))


def problem(
    pools: list[PoolState],
    groups: list[GroupLoad],
    arrivals: list[Arrivals] | None = None,
    others: list[NodeState] | None = None,
) -> PlacementProblem:
    """Every node of a pool that is ready serves model a."""
    live = [
        node(f"{one.pool}-{number}") for one in pools for number, ready_s in enumerate(one.ready_s) if ready_s == 0.0
    ]
    return PlacementProblem(
        version=1, now_s=0.0, nodes=[*(others or []), *live], groups=groups, arrivals=arrivals or [], pools=pools
    )


def needed(pools: list[PoolState], groups: list[GroupLoad], arrivals: list[Arrivals] | None = None) -> list[int]:
    return list(needed_nodes(problem(pools, groups, arrivals)).values())


def work(num_groups: int, drain_s: float, due_s: float) -> list[GroupLoad]:
    return [load(f"g{number}", drain_s=drain_s, due_s=due_s) for number in range(num_groups)]


def coming(rate_per_s: float, drain_s: float, within_s: float) -> Arrivals:
    return Arrivals(load("", drain_s=drain_s, due_s=within_s), rate_per_s)


def test_without_anything_to_do_the_least_is_enough() -> None:
    assert needed([pool(ready_s=[0.0, 0.0])], []) == [0]
    assert needed([pool(ready_s=[0.0, 0.0], least=1)], []) == [1]


def test_whatever_is_to_do_needs_a_node_even_if_it_has_an_hour() -> None:
    assert needed([pool(ready_s=[])], work(1, 1.0, 3600)) == [1]
    assert needed([pool(ready_s=[])], [], [coming(0.1, 1.0, 3600)]) == [1]
    assert needed_nodes(problem([pool(ready_s=[])], work(1, 1.0, 3600), others=[node("n0")])) == {"p": 0}


def test_work_that_one_node_has_done_in_time_needs_no_second() -> None:
    # the last of four begins after 3 × 10 s; a quarter of the time is kept as a margin
    assert needed([pool(ready_s=[0.0])], work(4, 10.0, 45.0)) == [1]
    assert needed([pool(ready_s=[0.0, 0.0])], work(4, 10.0, 45.0)) == [1]


def test_work_that_would_be_late_on_one_node_needs_a_second_if_that_can_help() -> None:
    assert needed([pool(ready_s=[0.0])], work(4, 10.0, 30.0)) == [2]
    # a node that begins after ten seconds can take the last one or two; one that begins after a minute is no use
    assert needed([pool(ready_s=[0.0], start_s=60.0)], work(4, 10.0, 30.0)) == [1]


def starting(name: str, serves_s: float) -> NodeState:
    fresh = node(name, "")
    rates = [dataclasses.replace(rate, load_s=serves_s) for rate in fresh.rates]
    return replace(fresh, swap_s=serves_s, rates=rates)


def test_a_node_that_starts_already_counts_from_when_it_will_serve() -> None:
    assert needed([pool(ready_s=[0.0, 10.0])], work(4, 10.0, 30.0)) == [2]
    assert nodes_of(problem([pool(ready_s=[0.0, 10.0])], []), {"p": 3})[1:] == [
        replace(
            node("p-1", ""), swap_s=10.0, rates=[dataclasses.replace(rate, load_s=10.0) for rate in node("", "").rates]
        ),
        replace(
            node("p-2", ""),
            swap_s=START_S,
            rates=[dataclasses.replace(rate, load_s=START_S) for rate in node("", "").rates],
        ),
    ]
    assert SWAP_S < START_S


def test_a_pool_never_has_more_than_its_limit_and_at_most_doubles_or_grows_by_four() -> None:
    flood = work(40, 10.0, 30.0)
    assert needed([pool(ready_s=[0.0], most=3)], flood) == [3]
    assert needed([pool(ready_s=[0.0], most=99)], flood) == [5]
    assert needed([pool(ready_s=[0.0] * 6, most=99)], flood) == [12]


def test_what_is_expected_is_a_reason_before_it_is_there() -> None:
    # two requests a second of one second each, to be begun within five: two nodes are busy all the time, and one more
    # keeps the margin; where there is but one, another has to catch up once it has started
    assert needed([pool(ready_s=[0.0] * 6)], [], [coming(2.0, 1.0, 5.0)]) == [3]
    assert needed([pool(ready_s=[0.0])], [], [coming(2.0, 1.0, 5.0)]) == [4]
    assert needed([pool(ready_s=[0.0] * 6)], [], [coming(0.5, 1.0, 5.0)]) == [1]
    # those who have a minute are late in a while only: that is soon enough for a node that starts in ten seconds
    assert needed([pool(ready_s=[0.0] * 6)], [], [coming(2.0, 1.0, 60.0)]) == [1]


def test_expected_groups_are_due_one_after_another_and_are_as_many_as_come() -> None:
    groups = list(expected(coming(2.0, 1.0, 5.0), START_S + AHEAD_S))
    assert sum(group.num_waiting for group in groups) == 50
    assert [round(group.deadline_s, 2) for group in groups] == [7.08, 11.25, 15.42, 19.58, 23.75, 27.92]
    assert [group.num_waiting for group in expected(coming(0.1, 1.0, 5.0), START_S + AHEAD_S)] == [1, 1, 1]
    assert list(expected(coming(0.0, 1.0, 5.0), START_S + AHEAD_S)) == []


def test_the_first_pool_grows_first_and_shrinks_last() -> None:
    first, second = pool("p", ready_s=[0.0]), pool("q", ready_s=[0.0])
    assert needed([first, second], work(9, 10.0, 40.0)) == [2, 1]
    assert needed([first, second], work(2, 1.0, 40.0)) == [1, 0]


def test_what_runs_can_move_to_fewer_nodes_if_it_ends_in_time_there() -> None:
    pools = [pool(ready_s=[0.0, 0.0])]
    both = [running("r0", "p-0", rest_s=10.0), running("r1", "p-1", rest_s=10.0)]
    assert needed(pools, both) == [1]  # they have begun in time, and nothing was promised of their ends
    hurried = [replace(one, end_by_s=12.0, mean_output_tokens=100.0) for one in both]  # all of it is still to come
    assert needed(pools, hurried) == [2]


def test_a_group_of_a_node_that_leaves_waits_elsewhere_in_two_parts() -> None:
    group = replace(running("r", "p-1", rest_s=6.0, num_requests=2, kv_s=1.0), num_waiting=3, deadline_s=7.0)
    ran, waits = moved(group, [node("p-0")], 0.0)
    assert (ran.num_waiting, ran.num_running, ran.kv_at, ran.mean_output_tokens) == (2, 0, HANDED_OVER, 30.0)
    assert ran.deadline_s > 1_000, "it has begun in time"
    assert (waits.num_waiting, waits.num_running, waits.kv_tokens, waits.deadline_s) == (3, 0, 0.0, 7.0)
    assert moved(group, [node("p-0"), node("p-1")], 0.0) == [group]


@given(
    num_nodes=st.integers(0, 4),
    least=st.integers(0, 2),
    room=st.integers(1, 4),
    jobs=st.lists(st.tuples(st.floats(0.5, 20), st.floats(1, 90)), max_size=6),
    rate_per_s=st.floats(0, 3),
)
def test_limits_hold_and_more_to_do_never_needs_no_node(
    num_nodes: int, least: int, room: int, jobs: list[tuple[float, float]], rate_per_s: float
) -> None:
    most = least + room
    state = pool(ready_s=[0.0] * min(max(num_nodes, least), most), least=least, most=most)
    groups = [load(f"g{number}", drain_s=one, due_s=due_s) for number, (one, due_s) in enumerate(jobs)]
    (number,) = needed([state], groups, [coming(rate_per_s, 1.0, 5.0)])
    assert least <= number <= most
    assert number > 0 or not (groups or rate_per_s > 0)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4])
def test_the_answer_hangs_little_on_how_many_there_are(num_nodes: int) -> None:
    # five jobs of 10 s within 30 s: two nodes do two each in time and the fifth at 20 s, with its margin at 22.5 s
    assert needed([pool(ready_s=[0.0] * num_nodes)], work(5, 10.0, 30.0)) == [2]
