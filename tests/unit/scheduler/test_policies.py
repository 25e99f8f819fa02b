"""The policies that QLM is compared with, on problems whose answer is plain to see."""

from __future__ import annotations

from services.scheduler.policies.edf_affine import ABOUT_S
from services.scheduler.policies.shepherd import worst_case_s
from shared.messages.nodes.placement import Operations
from tests.unit.scheduler.problems import load, node, plan, running


def test_edf_takes_deadline_after_deadline_to_the_node_that_is_free_first() -> None:
    groups = [load("late", due_s=30), load("soon", due_s=10, drain_s=5), load("next", due_s=20, drain_s=2)]
    answer = plan([node("n0"), node("n1")], groups, policy="edf")
    assert answer.queues == {"n0": ["soon"], "n1": ["next", "late"]}


def test_edf_does_not_see_swaps() -> None:
    groups = [load(f"g{number}", "ab"[number % 2], due_s=number) for number in range(4)]
    answer = plan([node("n0", "a")], groups, policy="edf")
    assert answer.queues == {"n0": ["g0", "g1", "g2", "g3"]}
    assert answer.num_swaps == 3


def test_edf_leaves_running_groups_in_front() -> None:
    groups = [running("runs", "n0", rest_s=5), load("soon", due_s=0), load("next", due_s=1)]
    answer = plan([node("n0"), node("n1")], groups, policy="edf")
    assert answer.queues == {"n0": ["runs"], "n1": ["soon", "next"]}


def test_edf_has_what_runs_give_way_to_what_is_due_before_it_if_it_may() -> None:
    groups = [running("runs", "n0", due_s=5), load("soon", due_s=0), load("next", due_s=9)]
    assert plan([node("n0")], groups, policy="edf").queues == {"n0": ["soon", "runs", "next"]}
    still = plan([node("n0")], groups, policy="edf", operations=Operations(evict=False))
    assert still.queues == {"n0": ["runs", "soon", "next"]}


def test_edf_keeps_the_order_of_a_kind_whatever_is_due_first() -> None:
    """Of one kind, what runs stays ahead of what waits at a later rank, though that is due before it."""
    groups = [running("runs", "n0", due_s=5, rank=0.0), load("later", due_s=0, rank=1.0)]
    assert plan([node("n0")], groups, policy="edf").queues == {"n0": ["runs", "later"]}
    groups[0] = running("runs", "n0", due_s=5, rank=2.0)
    assert plan([node("n0")], groups, policy="edf").queues == {"n0": ["later", "runs"]}


def test_edf_that_keeps_its_model_goes_on_with_it_among_groups_due_at_about_the_same_time() -> None:
    """A group of another model goes first once it is due more than `ABOUT_S` before the next of the loaded one."""
    groups = [load(f"g{number}", "ab"[number % 2], due_s=number) for number in range(4)]
    answer = plan([node("n0", "a")], groups, policy="edf-affine")
    assert answer.queues == {"n0": ["g0", "g2", "g1", "g3"]}
    assert answer.num_swaps == 1
    late = [load("g0", "a", due_s=ABOUT_S + 1), load("g1", "b", due_s=0), load("g2", "a", due_s=ABOUT_S)]
    assert plan([node("n0", "a")], late[:2], policy="edf-affine").queues == {"n0": ["g1", "g0"]}
    assert plan([node("n0", "a")], late[1:], policy="edf-affine").queues == {"n0": ["g2", "g1"]}


def test_edf_that_keeps_its_model_leaves_what_runs_in_front_where_nothing_is_evicted() -> None:
    """What runs is of b, so groups of b go on behind it, though the node is to load a."""
    groups = [load("soon", "a", due_s=0), load("next", "b", due_s=1), running("runs", "n0", "b", due_s=5)]
    still = plan([node("n0", "a")], groups, policy="edf-affine", operations=Operations(evict=False))
    assert still.queues == {"n0": ["runs", "next", "soon"]}


def test_edf_that_keeps_its_model_counts_loads_where_it_looks_for_the_first_node_to_begin() -> None:
    """n1 is free at once and has to load b; n0 has 1 s of work for it, and holds it."""
    groups = [load("first", "b", due_s=0, drain_s=1), load("next", "b", due_s=1)]
    nodes = [node("n0", "b"), node("n1", "a")]
    assert plan(nodes, groups, policy="edf-affine").queues == {"n0": ["first", "next"], "n1": []}
    assert plan(nodes, groups, policy="edf").queues == {"n0": ["first"], "n1": ["next"]}


def test_fcfs_joins_the_shortest_queue_of_the_model_in_the_order_of_arrival() -> None:
    groups = [
        load("g10", due_s=0, slo="interactive"),
        load("g9", num_requests=3),
        load("g8", num_requests=2),
        load("g7", "b"),
    ]
    answer = plan([node("n0", "a"), node("n1", "a"), node("n2", "b")], groups, policy="fcfs")
    assert answer.queues == {"n0": ["g8", "g10"], "n1": ["g9"], "n2": ["g7"]}


def test_fcfs_swaps_where_the_queue_is_shortest() -> None:
    answer = plan([node("n0"), node("n1")], [load("g0"), load("g1", "b"), load("g2", "b")], policy="fcfs")
    assert answer.queues == {"n0": ["g0"], "n1": ["g1", "g2"]}


def test_fcfs_routes_a_group_once() -> None:
    answer = plan([node("n0"), node("n1")], [load("g0"), load("g1")], policy="fcfs", queues={"n0": ["g1", "g0"]})
    assert answer.queues == {"n0": ["g0", "g1"], "n1": []}


def test_shepherd_counts_the_longest_answers_there_may_be() -> None:
    # four requests, one after another: each a prompt of one step of 0.1 s, and max_tokens - 1 steps
    batch = load("g0", num_requests=4, drain_s=1, max_tokens=100)
    assert worst_case_s(node(), batch) == 4 * 100 * 0.1
    assert worst_case_s(node(num_seqs=4), batch) == 100 * 0.4


def test_shepherd_goes_by_deadline_to_the_earliest_worst_case_completion() -> None:
    groups = [
        load("short", due_s=1, drain_s=1, max_tokens=200),
        load("long", due_s=2, drain_s=9, max_tokens=100),
        load("last", due_s=3, drain_s=1, max_tokens=10),
    ]
    answer = plan([node("n0"), node("n1")], groups, policy="shepherd")
    assert answer.queues == {"n0": ["short"], "n1": ["long", "last"]}


def test_shepherd_prefers_the_model_only_among_equals() -> None:
    nodes = [node("n0", "b"), node("n1", "a"), node("n2", "a", speed=2)]
    groups = [load("g0", max_tokens=10), load("g1", max_tokens=40)]
    assert plan(nodes[:2], groups[:1], policy="shepherd").queues == {"n0": [], "n1": ["g0"]}
    assert plan(nodes[::2], [load("g0", "b", max_tokens=10)], policy="shepherd").queues == {"n0": [], "n2": ["g0"]}


def test_every_policy_goes_without_what_it_may_not_do() -> None:
    nodes = [node("n0", "a"), node("n1", "b")]
    groups = [load("g0", "a", node="n1"), load("g1", "b", node="n0"), load("g2", "c")]
    queues = {"n0": ["g1"], "n1": ["g0"]}
    for policy in ("qlm", "edf", "edf-affine", "fcfs", "shepherd"):
        no_swap = plan(nodes, groups, policy=policy, operations=Operations(swap=False), queues=queues)
        assert no_swap.queues == {"n0": ["g0"], "n1": ["g1"]}
        still = plan(nodes, groups[:2], policy=policy, operations=Operations(balance=False), queues=queues)
        assert still.queues == queues
