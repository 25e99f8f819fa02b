"""Who leaves a batch that is too large for the promises of others.

A step takes 0.05 s and 0.01 s a row; answers have 10 tokens, none a long prompt. Of 2.05 s, 2 s are left behind the
first step: 0.2 s a token, a batch of 15. Every size is looked at up to 14, then 16.
"""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import ArrivalRates
from services.queue_manager.queues.crowding import INTERVAL_S, Crowding
from services.queue_manager.state.state import HandOver, Node, Request, State
from shared.messages.nodes import NodeState
from shared.messages.slo import Slo
from shared.messages.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import OPTIONS, make_group, place

URGENT_S, PATIENT_S = 2.06, 3600.0


def make_state(num_urgent: int, *num_patient: int) -> State:
    """So many run at ``n0`` of one who is in a hurry, and of groups that have an hour."""
    rate = ModelRate("a", StepCost(0.05, 0.01, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    state = State(nodes={"n0": Node(node="n0", epoch="1", known=NodeState("n0", "a", max_num_seqs=60, rates=[rate]))})
    newcomer = Request("r", "gw", "a", Slo("any", deadline_s=URGENT_S), "t", 0, 10, 0.0, 0)
    ArrivalRates(state.flows, state.lifetimes).observe(newcomer, 0.0)
    if num_urgent:
        make_group(state, "urgent", waiting=0, running=num_urgent, due_s=URGENT_S)
        place(state, "n0", "urgent")
    for number, size in enumerate(num_patient):
        make_group(state, f"patient{number}", waiting=0, running=size, due_s=PATIENT_S + number)
        place(state, "n0", f"patient{number}")
    return state


def leaving(state: State, now: float = 0.0) -> list[str]:
    found = Crowding(state, RequestGroups(state, OPTIONS, {})).leaving(["n0", "gone"], now)
    return [one.request_id for one in found.get("n0", [])]


def test_those_with_slack_leave_down_to_a_harmless_batch_newest_of_the_last_group_first() -> None:
    """18 run, and 16 do no harm that a step more in size would not do."""
    state = make_state(12, 4, 2)
    assert leaving(state) == ["patient1.1", "patient1.0"]


def test_a_node_is_asked_again_only_when_it_has_had_time_to_answer() -> None:
    state = make_state(12, 4, 2)
    assert leaving(state)
    assert not leaving(state, INTERVAL_S / 2)
    assert leaving(state, INTERVAL_S)


def test_nobody_leaves_a_batch_that_harms_nobody_or_in_which_all_are_alike() -> None:
    assert not leaving(make_state(12, 3))
    assert not leaving(make_state(30))
    assert not leaving(make_state(0, 30, 30)), "an hour is an hour"


def test_only_those_leave_who_have_time_though_all_that_is_here_comes_first() -> None:
    state = make_state(12, 4, 2)
    state.nodes["n0"].drain_s = PATIENT_S
    assert not leaving(state)


def test_who_is_handed_over_is_left_alone() -> None:
    state = make_state(12, 4, 2)
    state.hand_overs["patient1"] = HandOver("n1", 0.0)
    assert leaving(state) == ["patient0.3", "patient0.2"]
