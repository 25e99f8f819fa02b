"""Where the next plan can be expected to have those who have come since the last one."""

from __future__ import annotations

import pytest

from services.queue_manager.queues.planned_order import MAX_MOVED, index_by_plan, planned_order
from services.queue_manager.state.state import State
from tests.unit.queue_manager.books import make_group, make_state, orders, place


def index(state: State, new: str, at: int, *, may_evict: bool = True) -> int:
    """Of a group that is at this index of the queue."""
    node = state.nodes["n0"]
    queue = [state.groups[gid] for gid in node.queue]
    return index_by_plan(node.model, queue, state.groups[new], at, may_evict=may_evict)


def planned(state: State) -> list[str]:
    node = state.nodes["n0"]
    queue = [state.groups[gid] for gid in node.queue]
    return [group.gid for group in planned_order(node.model, queue, may_evict=True)]


@pytest.mark.parametrize(
    ("queue", "model", "expected"),
    [
        (("b0",), "a", 0),  # the node holds its model: before the swap
        (("a0", "b0", "a1"), "a", 1),  # with the first of its model, whatever stands behind the swap
        (("a0", "b0", "a1"), "b", 2),  # with those who bring its model
        (("a0",), "b", 1),  # nobody does: where it stands
        (("run", "b0"), "a", 1),  # who only runs is no reason to swap
    ],
)
def test_who_comes_is_expected_to_be_served_with_its_model(queue: tuple[str, ...], model: str, expected: int) -> None:
    state = make_state(n0="a")
    for gid in queue:
        make_group(
            state, gid, model=gid[0] if gid != "run" else "b", waiting=int(gid != "run"), running=int(gid == "run")
        )
    place(state, "n0", *queue)
    make_group(state, "new", model=model)
    assert index(state, "new", len(queue)) == expected


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (("later", "runs"), 0),  # who runs gives way
        (("later", "evicted"), 0),
        (("sooner", "later", "runs"), 1),
        (("later", "other", "runs"), 0),  # with the first of its model
        (("other", "later"), 0),  # the node holds its model
        (("sooner",), 1),
    ],
)
def test_who_comes_is_expected_to_be_served_before_those_of_its_model_that_are_due_later(
    queue: tuple[str, ...], expected: int
) -> None:
    state = make_state(n0="a")
    for gid in queue:
        make_group(
            state,
            gid,
            model="b" if gid == "other" else "a",
            kind=gid,
            due_s=1.0 if gid == "sooner" else 60.0,
            running=int(gid == "runs"),
            kv_at="n0" if gid == "evicted" else "",
        )
    place(state, "n0", *queue)
    make_group(state, "new", due_s=20.0)
    assert index(state, "new", len(queue)) == expected
    place(state, "n0", "new")
    assert index(state, "new", len(queue) + 1) == (expected if expected < len(queue) else len(queue) + 1)


def test_nobody_is_expected_to_give_way_where_nobody_may_be_evicted() -> None:
    state = make_state(n0="a")
    make_group(state, "later", kind="later", due_s=60.0)
    make_group(state, "runs", kind="later", due_s=60.0, running=1)
    place(state, "n0", "later", "runs")
    make_group(state, "new", due_s=20.0)
    assert index(state, "new", 2) == 0
    assert index(state, "new", 2, may_evict=False) == 2


def test_who_has_come_since_the_last_plan_is_expected_before_those_that_are_due_later() -> None:
    """Those that the plan has ordered stay as they are, whatever they wait for."""
    state = make_state(n0="a")
    for gid, due_s in (("p0", 3600.0), ("p1", 60.0), ("p2", 3600.0), ("new0", 20.0), ("new1", 60.0), ("new2", 30.0)):
        make_group(state, gid, kind=f"within {due_s}", due_s=due_s).is_planned = gid.startswith("p")
        place(state, "n0", gid)
    assert planned(state) == ["new0", "new2", "p0", "p1", "new1", "p2"]
    assert orders(state) == {"n0": ["p0", "p1", "p2", "new0", "new1", "new2"]}, "the queue itself is for the plan"


def test_who_only_runs_stays_where_it_stands() -> None:
    state = make_state(n0="a")
    make_group(state, "later", kind="batch", due_s=3600.0)
    make_group(state, "runs", waiting=0, running=1)
    place(state, "n0", "later", "runs")
    assert planned(state) == ["later", "runs"]


def test_in_a_burst_the_first_are_looked_at() -> None:
    state = make_state(n0="a")
    make_group(state, "later", kind="batch", due_s=3600.0).is_planned = True
    place(state, "n0", "later")
    for number in range(MAX_MOVED + 1):
        make_group(state, f"new{number}", rank=number)
        place(state, "n0", f"new{number}")
    assert planned(state).index("later") == MAX_MOVED
