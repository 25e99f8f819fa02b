"""What a node is told of its virtual queue."""

from __future__ import annotations

import msgspec

from services.queue_manager.learnt.arrivals import Flow
from services.queue_manager.state.plan_state import HandOver
from services.queue_manager.telling.window import (
    TIGHT_S,
    TIGHT_SEEN_S,
    TIGHT_STEPS,
    WINDOW_GROUPS,
    WINDOW_REQUESTS,
    window,
)
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import GroupRef
from tests.unit.queue_manager.books import make_group, make_state, place


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


def test_while_tight_promises_are_given_a_group_with_time_keeps_two_steps_of_prompts_before_a_newcomer() -> None:
    state = make_state(n0="a")
    state.nodes["n0"].known = msgspec.structs.replace(state.nodes["n0"].known, step_tokens=64)
    make_group(state, "urgent", due_s=4.0)
    make_group(state, "batch", waiting=3, kind="batch", due_s=3600.0)  # prompts of 8 tokens
    make_group(state, "other", kind="batch", due_s=3600.0, model="b")
    place(state, "n0", "urgent", "batch", "other")

    def unread() -> list[int | None]:
        return [ref.max_unread for ref in window(state, state.nodes["n0"])]

    assert unread() == [None, None, None]
    state.flows[RequestKind("a", "urgent")] = Flow(
        "a", "urgent", since_s=0.0, seen_s=10.0, num=2.0, patience_s=2 * TIGHT_S
    )
    state.now_s = 10.0 + TIGHT_SEEN_S
    assert unread() == [None, TIGHT_STEPS * 64 // 8, None]
    whole = ModelRate("a", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0, step_tokens=512)
    known = state.nodes["n0"].known
    state.nodes["n0"].known = msgspec.structs.replace(known, rates=[whole])
    assert unread() == [None, TIGHT_STEPS * 512 // 8, None], "its model has more room in a step than others"
    state.nodes["n0"].known = known
    state.now_s += 0.1
    assert unread() == [None, None, None], "the last came too long ago"
    state.now_s, state.flows[RequestKind("a", "urgent")].patience_s = 10.0, 2 * TIGHT_S + 0.1
    assert unread() == [None, None, None]
