"""Who gives way to whom."""

from __future__ import annotations

import math

from services.queue_manager.state.node_counts import PATIENCE_S
from services.queue_manager.state.plan_state import HandOver
from services.queue_manager.state.state import State
from services.queue_manager.telling.giving_way import MAX_LOOKED_AT, first_hurry, yielding
from services.queue_manager.telling.window import window
from tests.unit.queue_manager.books import make_group, make_state, place


def gives_way(state: State) -> list[str]:
    node = state.nodes["n0"]
    return yielding(state, node, window(state, node))


def hurries_at(state: State) -> float:
    node = state.nodes["n0"]
    return first_hurry(state, node, window(state, node))[0]


def test_groups_give_way_in_the_order_of_the_queue_while_they_run_behind_the_first_that_waits() -> None:
    state = make_state(n0="a")
    for gid, num_waiting, num_running in (("g0", 0, 1), ("g1", 1, 0), ("g2", 1, 1), ("g3", 0, 2), ("g4", 1, 1)):
        make_group(state, gid, waiting=num_waiting, running=num_running, kind="soon" if gid == "g1" else "batch")
        place(state, "n0", gid)
    state.groups["g1"].start_by_s = 5.0
    state.nodes["n0"].yielding = ["g4", "g3", "g0"]
    assert gives_way(state) == ["g3", "g4"], "g0 is before the head; of g2 no plan has said it"
    state.groups["g3"].running.clear()
    assert gives_way(state) == ["g4"]
    state.hand_overs["g4"] = HandOver("n1", 1.0)
    assert gives_way(state) == [], "it is taken out as a whole already"


def test_nobody_gives_way_to_its_like() -> None:
    """Else the evicted, who wait in front of what is left of their group, would change places with it for ever."""
    state = make_state(n0="a")
    make_group(state, "evicted", kv_at="n0")
    make_group(state, "rest", running=1)
    place(state, "n0", "evicted", "rest")
    state.nodes["n0"].yielding = ["rest"]
    assert gives_way(state) == []


def test_nobody_gives_way_to_who_is_due_later() -> None:
    state = make_state(n0="a")
    make_group(state, "patient", kind="batch")
    make_group(state, "urgent", waiting=0, running=1, kind="soon")
    place(state, "n0", "patient", "urgent")
    state.nodes["n0"].yielding = ["urgent"]
    state.groups["patient"].start_by_s, state.groups["urgent"].start_by_s = 60.0, 20.0
    assert gives_way(state) == []
    state.groups["patient"].start_by_s = 19.0
    assert gives_way(state) == ["urgent"]


def test_who_has_time_stands_before_who_has_not_and_nobody_gives_way_to_it() -> None:
    state = make_state(n0="a")
    make_group(state, "patient", kind="batch")
    make_group(state, "urgent")
    make_group(state, "runs", waiting=0, running=1, kind="slow")
    place(state, "n0", "patient", "urgent", "runs")
    state.groups["runs"].start_by_s = 30.0
    node = state.nodes["n0"]
    node.yielding, node.patient, node.max_running = ["runs"], ["patient"], 8
    assert gives_way(state) == ["runs"], "to the urgent one"
    node.patient = ["patient", "urgent"]
    assert gives_way(state) == []


def test_nobody_gives_way_when_nobody_waits() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=0, running=1)
    place(state, "n0", "g0")
    state.nodes["n0"].yielding = ["g0"]
    assert gives_way(state) == []


def test_a_group_is_in_a_hurry_when_half_of_its_promise_is_over() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", due_s=20.0)
    place(state, "n0", "g0")
    assert hurries_at(state) == 10.0


def test_who_has_more_than_two_minutes_or_waits_for_another_model_is_never_in_a_hurry() -> None:
    cases = [(PATIENCE_S, "a", PATIENCE_S / 2), (PATIENCE_S + 1.0, "a", math.inf), (20.0, "b", math.inf)]
    for due_s, model, at_s in cases:
        state = make_state(n0="a")
        make_group(state, "g0", due_s=due_s, model=model)
        place(state, "n0", "g0")
        assert hurries_at(state) == at_s


def test_nobody_is_in_a_hurry_where_all_may_wait_until_the_batch_has_room() -> None:
    state = make_state(n0="a")
    make_group(state, "g0")
    place(state, "n0", "g0")
    state.nodes["n0"].patient, state.nodes["n0"].max_running = ["g0"], 8
    assert hurries_at(state) == math.inf


def test_those_with_two_minutes_more_give_way_to_a_group_in_a_hurry_whatever_the_plan_says() -> None:
    state = make_state(n0="a")
    make_group(state, "ahead", waiting=1, running=1, kind="batch", due_s=3600.0)
    make_group(state, "first", due_s=20.0)
    make_group(state, "soon", waiting=0, running=1, kind="soon", due_s=20.0 + PATIENCE_S - 1.0)
    make_group(state, "waits", kind="batch", due_s=3600.0)
    make_group(state, "runs", waiting=1, running=1, kind="batch", due_s=3600.0)
    make_group(state, "late", waiting=0, running=1, kind="late", due_s=20.0 + PATIENCE_S)
    place(state, "n0", "ahead", "first", "soon", "waits", "runs", "late")
    assert gives_way(state) == []

    state.nodes["n0"].hurried = "first"

    assert window(state, state.nodes["n0"])[0].group == "first"
    assert gives_way(state) == ["ahead", "runs", "late"]
    state.nodes["n0"].yielding = ["soon"]
    assert gives_way(state) == ["ahead", "soon", "runs", "late"], "and those that a plan has named"


def test_a_bounded_number_of_groups_is_looked_at() -> None:
    state = make_state(n0="a")
    make_group(state, "first", due_s=20.0)
    place(state, "n0", "first")
    for number in range(MAX_LOOKED_AT - 2):
        make_group(state, f"waits {number}", kind="batch", due_s=3600.0)
        place(state, "n0", f"waits {number}")
    for gid in ("seen", "not seen"):
        make_group(state, gid, waiting=0, running=1, kind="batch", due_s=3600.0)
        place(state, "n0", gid)
    state.nodes["n0"].hurried = "first"

    assert gives_way(state) == ["seen"]


def test_a_group_in_a_hurry_goes_before_those_with_time_and_no_others() -> None:
    state = make_state(n0="a")
    make_group(state, "ahead", kind="batch", due_s=3600.0)
    make_group(state, "hurried", due_s=20.0)
    make_group(state, "more hurried", kind="soon", due_s=4.0)
    place(state, "n0", "ahead", "hurried", "more hurried")
    node = state.nodes["n0"]
    assert first_hurry(state, node, window(state, node)) == (10.0, "hurried"), "it has no two minutes more"

    state.groups["ahead"].start_by_s = 19.0

    assert first_hurry(state, node, window(state, node)) == (math.inf, ""), "that is late, say, and stands in front"
