"""What a node is told of its virtual queue."""

from __future__ import annotations

from services.queue_manager.state.plan_state import HandOver
from services.queue_manager.state.state import State
from services.queue_manager.telling.window import WINDOW_GROUPS, WINDOW_REQUESTS, window, yielding
from shared.messages.requests import GroupRef
from tests.unit.queue_manager.books import make_group, make_state, place


def gives_way(state: State) -> list[str]:
    node = state.nodes["n0"]
    return yielding(state, node, window(state, node))


def test_a_node_sees_the_groups_in_which_somebody_waits() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=0, running=2)
    make_group(state, "g1", waiting=2, running=1)
    make_group(state, "g2", waiting=1, model="b")
    place(state, "n0", "g0", "g1", "g2")
    assert window(state, state.nodes["n0"]) == [GroupRef("g1", "a", 2), GroupRef("g2", "b", 1)]


def test_a_node_sees_as_many_requests_as_it_can_pull_at_once() -> None:
    state = make_state(n0="a")
    for gid, num_waiting in (("g0", WINDOW_REQUESTS - 1), ("g1", 1), ("g2", 1)):
        make_group(state, gid, waiting=num_waiting)
        place(state, "n0", gid)
    assert [ref.group for ref in window(state, state.nodes["n0"])] == ["g0", "g1"]


def test_a_node_sees_only_so_many_groups() -> None:
    state = make_state(n0="a")
    for number in range(WINDOW_GROUPS + 2):
        make_group(state, f"g{number}")
        place(state, "n0", f"g{number}")
    head = window(state, state.nodes["n0"])
    assert [ref.group for ref in head] == [f"g{number}" for number in range(WINDOW_GROUPS)]


def test_groups_that_have_time_are_told_beside_how_many_they_may_begin_and_hide_nobody() -> None:
    state = make_state(n0="a")
    make_group(state, "patient", waiting=WINDOW_REQUESTS, kind="batch")
    make_group(state, "too", kind="batch")
    make_group(state, "urgent")
    place(state, "n0", "patient", "too", "urgent")
    state.nodes["n0"].patient, state.nodes["n0"].max_running = ["patient", "too"], 8
    assert window(state, state.nodes["n0"]) == [
        GroupRef("patient", "a", WINDOW_REQUESTS, 8),
        GroupRef("urgent", "a", 1),
    ], "behind so many that have time, one more of them need not be seen"


def test_nobody_pulls_from_a_group_that_is_handed_over() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "g0", running=1)
    make_group(state, "g1")
    place(state, "n0", "g0", "g1")
    state.hand_overs["g0"] = HandOver("n1", 1.0)
    assert window(state, state.nodes["n0"]) == [GroupRef("g1", "a", 1)]


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
