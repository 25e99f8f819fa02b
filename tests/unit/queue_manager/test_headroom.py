"""How many may run together so that those who run keep their promises, and who waits for that."""

from __future__ import annotations

import math

import msgspec
import pytest

from services.queue_manager.groups import RequestGroups
from services.queue_manager.headroom import MAX_GROUPS, MIX_MEMORY_S, Headroom, _pace_s
from services.queue_manager.state import Node, State
from services.queue_manager.window import window
from shared.placement import NodeState
from shared.slo import Slo
from shared.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import OPTIONS, make_group, place

PLACES = 60


def make_state(step_s: float = 0.05, row_s: float = 0.01) -> State:
    """A node whose steps take ``step_s`` and ``row_s`` a member; answers end at 10 tokens, their limit."""
    rate = ModelRate("a", StepCost(step_s, row_s, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    known = NodeState("n0", "a", max_num_seqs=PLACES, rates=[rate])
    return State(nodes={"n0": Node(node="n0", epoch="1", known=known)})


def look(state: State, now: float = 0.0) -> Node:
    Headroom(state, RequestGroups(state, OPTIONS, {})).look(state.nodes["n0"], now)
    return state.nodes["n0"]


def tokens_of(state: State, gid: str) -> float:
    """Answers of the group, as long as nothing is learnt: cut at their limit."""
    return RequestGroups(state, OPTIONS, {}).load(state.groups[gid], 0.0).mean_output_tokens


def test_a_batch_is_bounded_by_the_pace_that_its_promises_ask_for() -> None:
    """10 tokens in 4 s are 0.4 s a token: 0.05 s for the step, and 0.01 s and its prompt's 0.08 s / o a member."""
    state = make_state()
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    added_s = 0.01 + 8 * 0.01 / tokens_of(state, "runs")
    assert look(state).max_running == int((0.4 - 0.05) / added_s) < PLACES


def test_what_would_not_fit_anyway_is_no_bound() -> None:
    state = make_state()
    make_group(state, "runs", waiting=0, running=1, due_s=3600.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    node = look(state)
    assert (node.max_running, node.patient) == (None, [])


def test_of_several_promises_the_tightest_bounds_it() -> None:
    state = make_state()
    make_group(state, "soon", waiting=0, running=1, kind="soon", due_s=4.0)
    place(state, "n0", "soon")
    alone = look(state).max_running
    make_group(state, "later", waiting=0, running=1, kind="later", due_s=6.0)
    place(state, "n0", "later")
    assert look(state).max_running == alone


def test_those_who_wait_bound_nothing() -> None:
    state = make_state()
    make_group(state, "waits", due_s=4.0)
    place(state, "n0", "waits")
    assert look(state).max_running is None


def test_a_pace_that_cannot_be_had_bounds_nothing_below_the_batch_where_weights_take_half_of_a_step() -> None:
    state = make_state(step_s=0.5)
    make_group(state, "runs", waiting=0, running=1, due_s=1.0)  # 0.1 s a token, where one alone takes 0.5 s
    place(state, "n0", "runs")
    added_s = 0.01 + 8 * 0.01 / tokens_of(state, "runs")
    assert look(state).max_running == int(0.5 / added_s) < PLACES


@pytest.mark.parametrize(
    ("slo", "pace_s"),
    [
        (Slo("end", deadline_s=20.0), 0.2),
        (Slo("pace", tpot_s=0.05), 0.05),
        (Slo("both", tpot_s=0.3, deadline_s=20.0), 0.2),
        (Slo("start", ttft_s=1.0), None),
        (Slo("nothing"), None),
    ],
)
def test_the_pace_that_a_promise_asks_for_an_answer_of_a_hundred_tokens(slo: Slo, pace_s: float | None) -> None:
    assert _pace_s(slo, 100.0) == pace_s


def test_patient_is_who_is_in_time_behind_all_that_is_due_before_at_half_the_pace() -> None:
    state = make_state()
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
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    for number in range(MAX_GROUPS + 1):
        make_group(state, f"g{number}", due_s=3600.0, kind="batch")
        place(state, "n0", f"g{number}")
    node = look(state)
    assert node.patient == [f"g{number}" for number in range(MAX_GROUPS)]
    assert all(ref.max_running == node.max_running for ref in window(state, node))


def test_all_that_runs_speaks_for_what_a_member_adds() -> None:
    """Three whose prompts add nothing and one whose prompt of 8 tokens adds 0.08 s: one adds 0.02 s / o on average."""
    state = make_state()
    make_group(state, "long", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "long")
    alone = look(state).max_running
    make_group(state, "short", waiting=0, running=3, due_s=4.0, kind="other")
    for member in state.groups["short"].running:
        group = state.groups["short"]
        group.running_totals.remove(state.requests[member])
        state.requests[member].prompt_tokens = 0
        group.running_totals.add(state.requests[member])
    place(state, "n0", "short")
    state.nodes["n0"].mix, state.nodes["n0"].bounds = None, {}
    added_s = 0.01 + 0.25 * 8 * 0.01 / tokens_of(state, "long")
    assert look(state).max_running == int((0.4 - 0.05) / added_s)
    assert alone is not None
    assert int((0.4 - 0.05) / added_s) > alone, "by its own prompts, the first group would allow fewer"


def test_the_mix_fades_and_is_forgotten_with_its_model() -> None:
    state = make_state()
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    mix = look(state, now=0.0).mix
    assert mix is not None
    assert (mix.model, mix.seen_s) == ("a", 0.0)
    assert (mix.places, mix.added_s) == pytest.approx((1 / PLACES, 0.01 + 8 * 0.01 / tokens_of(state, "runs")))
    state.nodes["n0"].mix = msgspec.structs.replace(mix, added_s=2 * mix.added_s)
    faded = look(state, now=MIX_MEMORY_S).mix
    assert faded is not None
    assert faded.added_s == pytest.approx((1 + math.exp(-1)) * mix.added_s)
    state.nodes["n0"].mix = msgspec.structs.replace(faded, model="b")
    fresh = look(state, now=2 * MIX_MEMORY_S).mix
    assert fresh is not None
    assert fresh.added_s == pytest.approx(mix.added_s)


def test_a_node_that_nobody_knows_has_no_bound() -> None:
    state = make_state()
    state.nodes["n0"].known = msgspec.structs.replace(state.nodes["n0"].known, rates=[])
    make_group(state, "runs", waiting=0, running=1, due_s=0.1)
    place(state, "n0", "runs")
    assert look(state).max_running is None
