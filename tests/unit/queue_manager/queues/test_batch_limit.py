"""How many may run together so that those who run keep their promises, and who waits for that."""

from __future__ import annotations

import msgspec
import pytest

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import MEMORY_S, ArrivalRates
from services.queue_manager.queues.batch_limit import MAX_GROUPS, BatchLimits, _pace_s
from services.queue_manager.state.state import Node, Request, State
from services.queue_manager.telling.window import window
from shared.messages.nodes import NodeState
from shared.messages.slo import Slo
from shared.messages.step_cost import ModelRate, StepCost
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


def test_a_batch_is_bounded_by_the_pace_that_its_promises_ask_for() -> None:
    """10 tokens in 4 s are 0.4 s a token: 0.05 s for the step, 0.01 s for a row, and 0.08 s / 10 for its prompt."""
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    assert look(state).max_running == 19, "0.35 s / 0.018 s"


def test_what_would_not_fit_anyway_is_no_bound() -> None:
    state = make_state()
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=3600.0)
    make_group(state, "waits", due_s=3600.0)
    place(state, "n0", "runs", "waits")
    node = look(state)
    assert (node.max_running, node.patient) == (None, [])


def test_of_several_promises_the_tightest_bounds_it() -> None:
    state = make_state()
    come(state)
    make_group(state, "later", waiting=0, running=1, kind="later", due_s=6.0)
    place(state, "n0", "later")
    assert look(state).max_running == 30, "0.55 s / 0.018 s"
    make_group(state, "soon", waiting=0, running=1, kind="soon", due_s=4.0)
    place(state, "n0", "soon")
    node = look(state)
    assert {kind: bound.max_running for kind, bound in node.bounds.items()} == {"later": 30, "soon": 19}
    assert node.max_running == 19


def test_those_who_wait_bound_nothing() -> None:
    state = make_state()
    come(state)
    make_group(state, "waits", due_s=4.0)
    place(state, "n0", "waits")
    assert look(state).max_running is None


def test_a_pace_that_cannot_be_had_bounds_nothing_below_the_batch_where_weights_take_half_of_a_step() -> None:
    state = make_state(step_s=0.5)
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=1.0)  # 0.1 s a token, where one alone takes 0.5 s
    place(state, "n0", "runs")
    assert look(state).max_running == 27, "0.5 s / 0.018 s"


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


# --- an average request in a batch -----------------------------------------------------------------------------------


def bound_of_what_came(state: State, now: float = 0.0) -> int | None:
    """By a group of one that runs, with a prompt of 8 tokens, whose promise allows 0.4 s a token."""
    make_group(state, "runs", waiting=0, running=1, due_s=4.0)
    place(state, "n0", "runs")
    return look(state, now).max_running


def test_the_bound_follows_what_has_come_and_not_the_few_that_run() -> None:
    state = make_state()
    come(state, prompt_tokens=2)
    assert bound_of_what_came(state) == 29, "0.35 s / 0.012 s, and not 0.35 s / 0.018 s"


def test_what_has_come_of_all_kinds_speaks_for_what_a_member_adds() -> None:
    """Three whose prompts add nothing and one whose prompt adds 0.08 s: one adds 0.002 s a token on average."""
    state = make_state()
    come(state, "interactive")
    come(state, "other", number=3, prompt_tokens=0)
    assert bound_of_what_came(state) == 29


def test_a_kind_counts_as_often_as_it_is_met_in_a_batch() -> None:
    """By tokens: ten of 0.01 s and five of 0.026 s are 0.23 s / 15; two alike in number would be 0.018 s."""
    state = make_state()
    come(state, "long", prompt_tokens=0)
    come(state, "short", max_tokens=5)
    assert bound_of_what_came(state) == 22


def test_nodes_that_are_alike_have_the_same_bound_whatever_runs_there() -> None:
    state = make_state()
    state.nodes["n1"] = make_node("n1")
    come(state)
    make_group(state, "one", waiting=0, running=1, due_s=4.0)
    make_group(state, "many", waiting=0, running=5, due_s=4.0)
    for member in state.groups["many"].running:
        state.requests[member].prompt_tokens = 500
    place(state, "n0", "one")
    place(state, "n1", "many")
    assert look(state).max_running == look(state, name="n1").max_running == 19


def test_what_came_long_ago_still_gives_a_bound() -> None:
    state = make_state()
    come(state)
    assert bound_of_what_came(state, now=60 * MEMORY_S) == 19


def test_what_comes_now_outweighs_what_came_long_ago() -> None:
    """After one memory it counts 1 / e: 0.01 s + 0.008 s / (e + 1) = 0.01215 s."""
    state = make_state()
    come(state)
    late = Request("r", "gw", "a", Slo("other", deadline_s=4.0), "t", 0, 10, MEMORY_S, 0)
    ArrivalRates(state.flows, state.lifetimes).observe(late, MEMORY_S)
    assert bound_of_what_came(state, now=MEMORY_S) == 28


def test_where_nothing_has_come_there_is_no_bound() -> None:
    assert bound_of_what_came(make_state()) is None


def test_a_node_that_nobody_knows_has_no_bound() -> None:
    state = make_state()
    state.nodes["n0"].known = msgspec.structs.replace(state.nodes["n0"].known, rates=[])
    come(state)
    make_group(state, "runs", waiting=0, running=1, due_s=0.1)
    place(state, "n0", "runs")
    assert look(state).max_running is None
