"""How many may run together so that those who run keep their promises, and who waits for that."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import ArrivalRates
from services.queue_manager.queues.batch_limit import MAX_GROUPS, STALE_S, BatchLimits
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from services.queue_manager.telling.window import window
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import OPTIONS, make_group, place

PLACES = 60


def make_state(step_s: float = 0.05, row_s: float = 0.01) -> State:
    """A node whose steps take ``step_s`` and ``row_s`` a row; all answers end at their limits, as nothing is learnt."""
    return State(nodes={"n0": make_node("n0", step_s, row_s)})


def make_node(name: str, step_s: float = 0.05, row_s: float = 0.01) -> Node:
    rate = ModelRate("a", StepCost(step_s, row_s, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    return Node(node=name, epoch="1", known=NodeState(name, "a", max_num_seqs=PLACES, rates=[rate]))


def come(
    state: State, kind: str = "interactive", *, number: int = 1, prompt_tokens: int = 8, max_tokens: int = 10
) -> None:
    """So many have come at 0 s, and have gone again."""
    for _ in range(number):
        slo = Slo(kind, deadline_s=4.0)
        ArrivalRates(state.flows, state.lifetimes).observe(
            Request("r", "gw", "a", slo, "t", prompt_tokens, max_tokens, 0.0, 0), 0.0
        )


def look(state: State, now: float = 0.0, name: str = "n0") -> Node:
    BatchLimits(state, RequestGroups(state, OPTIONS, {})).look(state.nodes[name], now)
    return state.nodes[name]


def test_a_batch_is_bounded_where_one_more_would_break_a_promise() -> None:
    """10 tokens and a prompt of 8, in steps of 0.05 s and 0.01 s a row; 4 s were promised, and all answers are alike.

    Behind a step and its prompt, 3.87 s are left for 10 tokens: 0.387 s each. A batch of r takes 0.05 + 0.01 r: 33
    take 0.38 s, 34 take 0.39 s.
    """
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    node = look(state)
    assert (node.max_running, node.patient) == (33, ["waits"])


def test_where_nobody_is_in_a_hurry_nothing_is_bounded() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=3600.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    node = look(state)
    assert (node.max_running, node.patient) == (None, [])


def test_who_cannot_be_helped_bounds_nothing() -> None:
    state = make_state(step_s=0.5)
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=1.0)  # 0.1 s a token, where one alone takes 0.5 s
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    assert look(state).max_running is None


def test_a_pace_that_was_promised_bounds_it_too() -> None:
    """A token within 0.1 s: 0.05 s and 0.01 s a row are a batch of five."""
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=60.0)
    state.requests["runs.0"].slo = Slo("pace", tpot_s=0.1, deadline_s=60.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    assert look(state).max_running == 5


def test_a_limit_holds_for_a_while() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "waits")
    assert look(state).max_running is None
    place(state, "n0", "runs")
    assert look(state, STALE_S / 2).max_running is None
    assert look(state, STALE_S).max_running == 33


def test_who_was_found_to_harm_nobody_is_not_held_back() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    make_group(state, "waits", due_s=3600.0).key = GroupKey(is_new=True)
    make_group(state, "seated", due_s=3600.0).key = GroupKey(place="n0", is_new=True)
    place(state, "n0", "runs", "waits", "seated")
    assert look(state).patient == ["waits"]


def test_patient_is_who_is_in_time_behind_all_that_is_due_before_at_half_the_pace() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    make_group(state, "first", due_s=20.0, kind="batch")
    make_group(state, "second", due_s=21.0, kind="batch")
    place(state, "n0", "second", "first", "runs")
    state.groups["runs"].drain_s, state.groups["first"].drain_s, state.groups["second"].drain_s = 1.0, 8.0, 1.0
    assert look(state, now=0.5).patient == ["first", "second"], "18 s and 20 s of waiting at half the pace"
    assert look(state, now=1.5).patient == ["first"]
    assert look(state, now=2.5).patient == []


def test_the_walk_along_a_queue_is_bounded_and_nobody_behind_it_overtakes_the_patient() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    for number in range(MAX_GROUPS + 1):
        make_group(state, f"g{number}", due_s=3600.0, kind="batch")
        place(state, "n0", f"g{number}")
    node = look(state)
    assert node.patient == [f"g{number}" for number in range(MAX_GROUPS)]
    assert all(ref.max_running == node.max_running for ref in window(state, node))


def test_requests_with_slack_behind_the_groups_that_are_looked_at_are_counted() -> None:
    """Of those behind, the one that is due in 100 s has no slack where all that is before it takes 60 s alone."""
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    for number in range(MAX_GROUPS):
        make_group(state, f"g{number}", due_s=3600.0, kind="batch")
        place(state, "n0", f"g{number}")
    make_group(state, "behind", waiting=3, due_s=3600.0, kind="batch")
    make_group(state, "soon", waiting=2, due_s=100.0)
    place(state, "n0", "behind", "soon")
    state.nodes["n0"].drain_s = 60.0
    limit = look(state).limit
    assert limit is not None
    totals = state.groups["behind"].waiting_totals
    assert (limit.num_behind, limit.tokens_behind) == (3, totals.prompt_tokens + totals.done_tokens)
    assert limit.tokens_behind > 0


def test_where_nothing_has_come_or_nobody_waits_there_is_no_bound() -> None:
    state = make_state()
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    assert look(state).max_running is None
    come(state)
    assert look(state, 1.0).max_running == 33
    alone = make_state()
    come(alone)
    make_group(alone, "runs", waiting=0, running=1, due_s=4.0)
    place(alone, "n0", "runs")
    assert look(alone).max_running is None
