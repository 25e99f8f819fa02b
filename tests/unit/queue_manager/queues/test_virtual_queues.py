"""Virtual queues: where a new group goes."""

from __future__ import annotations

import pytest

from services.queue_manager.state.node_counts import PATIENCE_S
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeState
from tests.unit.queue_manager.books import make_group, make_queues, make_state, orders, place

NOW = 1.0


# --- by rule --------------------------------------------------------------------------------------------------------


def test_a_group_goes_to_the_tail_of_a_node_that_holds_its_model() -> None:
    state = make_state(n0="b", n1="a")
    for gid in ("g0", "g1"):
        assert make_queues(state).place(make_group(state, gid), NOW) is state.nodes["n1"]
    assert orders(state) == {"n0": [], "n1": ["g0", "g1"]}


def test_of_several_nodes_the_one_that_is_drained_first_takes_it_then_the_first_by_name() -> None:
    state = make_state(n1="a", n0="a")
    for gid, num_waiting in (("g0", 3), ("g1", 1), ("g2", 1), ("g3", 1), ("g4", 1)):
        make_queues(state).place(make_group(state, gid, waiting=num_waiting), NOW)
    assert orders(state) == {"n0": ["g0", "g4"], "n1": ["g1", "g2", "g3"]}
    assert state.nodes["n0"].drain_s == pytest.approx(4 / 3 * state.nodes["n1"].drain_s)


def test_a_node_that_loads_is_free_after_that() -> None:
    state = make_state(n0="a", n1="a")
    state.nodes["n0"].known = NodeState(node="n0", model="a", ready_at_s=NOW + 0.5)
    assert make_queues(state).place(make_group(state, "g0"), NOW) is state.nodes["n1"]
    assert make_queues(state).place(make_group(state, "g1"), NOW + 0.5) is state.nodes["n0"]


def test_work_is_counted_in_seconds_and_follows_the_group() -> None:
    state = make_state(n0="a")
    queues = make_queues(state)
    first, second = make_group(state, "g0", waiting=2), make_group(state, "g1")
    queues.place(first, NOW)
    queues.place(second, NOW)
    assert state.nodes["n0"].drain_s == pytest.approx(3 * second.drain_s)
    queues.remove(first)
    assert state.nodes["n0"].drain_s == pytest.approx(second.drain_s)
    queues.remove(second)
    assert (state.nodes["n0"].drain_s, second.drain_s) == (0.0, 0.0)


def test_a_group_whose_model_nobody_holds_has_no_place() -> None:
    state = make_state(n0="b")
    group = make_group(state, "g0")
    assert make_queues(state).place(group, NOW) is None
    assert make_queues(state).unplaced() == [group]


def test_a_group_without_a_place_is_removed_from_nowhere() -> None:
    state = make_state(n0="a")
    group = make_group(state, "g0")
    assert make_queues(state).remove(group) is None
    place(state, "n0", "g0")
    assert make_queues(state).remove(group) is state.nodes["n0"]
    assert orders(state) == {"n0": []}


def test_an_urgent_group_goes_before_waiting_groups_of_its_model_that_are_due_later() -> None:
    state = make_state(n0="a")
    make_group(state, "soon", kind="other", due_s=10.0)
    for gid in ("late0", "late1"):
        make_group(state, gid, kind="batch", due_s=3600.0)
    place(state, "n0", "soon", "late0", "late1")
    make_queues(state).place(make_group(state, "new", due_s=20.0), NOW)
    assert orders(state) == {"n0": ["soon", "new", "late0", "late1"]}


def test_it_does_not_overtake_what_would_have_to_be_swapped_or_evicted() -> None:
    state = make_state(n0="a")
    make_group(state, "runs", kind="batch", due_s=20.0 + PATIENCE_S - 1.0, running=1)
    make_group(state, "was evicted", kind="batch", due_s=20.0 + PATIENCE_S - 1.0, kv_at="n0")
    make_group(state, "other model", kind="batch", due_s=3600.0, model="b")
    for gid in ("runs", "was evicted", "other model"):
        place(state, "n0", gid)
        make_queues(state).place(make_group(state, f"behind {gid}"), NOW)
    assert orders(state) == {
        "n0": ["runs", "behind runs", "was evicted", "behind was evicted", "other model", "behind other model"]
    }


def test_it_goes_before_those_that_have_two_minutes_more_also_where_they_run() -> None:
    state = make_state(n0="a")
    make_group(state, "runs alone", kind="batch", due_s=20.0 + PATIENCE_S, waiting=0, running=1)
    make_group(state, "runs", kind="batch", due_s=20.0 + PATIENCE_S, running=1)
    make_group(state, "was evicted", kind="batch", due_s=20.0 + PATIENCE_S, kv_at="n0")
    place(state, "n0", "runs alone", "runs", "was evicted")

    make_queues(state).place(make_group(state, "new"), NOW)

    assert orders(state) == {"n0": ["new", "runs alone", "runs", "was evicted"]}


def test_within_its_kind_a_group_goes_by_its_rank() -> None:
    state = make_state(n0="a")
    for gid, rank in (("g0", 0.0), ("g1", 100.0), ("g2", 200.0)):
        make_group(state, gid, rank=rank)
        place(state, "n0", gid)
    make_queues(state).place(make_group(state, "new", rank=100.0), NOW)
    assert orders(state) == {"n0": ["g0", "g1", "new", "g2"]}


@pytest.mark.parametrize("policy", ["edf", "fcfs", "shepherd"])
def test_other_policies_leave_every_order_to_the_plan(policy: str) -> None:
    state = make_state(n0="a")
    make_group(state, "late", kind="batch", due_s=3600.0)
    place(state, "n0", "late")
    options = QueueOptions.model_validate({"policy": policy, "operations": {"overtake": False}})
    make_queues(state, options).place(make_group(state, "new"), NOW)
    assert orders(state) == {"n0": ["late", "new"]}


@pytest.mark.parametrize("policy", ["edf", "edf-affine", "shepherd"])
def test_those_who_go_by_deadline_may_overtake_what_is_due_later(policy: str) -> None:
    state = make_state(n0="a")
    make_group(state, "late", kind="batch", due_s=3600.0)
    place(state, "n0", "late")
    make_queues(state, QueueOptions.model_validate({"policy": policy})).place(make_group(state, "new"), NOW)
    assert orders(state) == {"n0": ["new", "late"]}


def test_who_begins_at_once_stands_before_those_who_wait_for_another_model() -> None:
    state = make_state(n0="a")
    for gid, model in (("g0", "a"), ("g1", "b"), ("new", "a")):
        make_group(state, gid, model=model)
    place(state, "n0", "g0", "g1")
    make_queues(state).enter_seat(state.groups["new"], state.nodes["n0"], NOW)
    assert orders(state) == {"n0": ["g0", "new", "g1"]}
