"""Where a newcomer begins at once: by the share of what was promised that it costs all."""

from __future__ import annotations

import msgspec

from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.state.node import BatchLimit, Node, Unread
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import make_group, place

# 10 output tokens, no prompt: 10 steps of step_s + (r + 1) * token_s
LOAD = GroupLoad(group="", model="a", deadline_s=20.0, num_waiting=1, mean_output_tokens=10.0)


def make_node(name: str, step_s: float, token_s: float = 0.01, model: str = "a", max_num_seqs: int = 4) -> Node:
    rate = ModelRate("a", StepCost(step_s, token_s, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=1.0)
    known = NodeState(node=name, model=model, max_num_seqs=max_num_seqs, rates=[rate], device="cpu")
    return Node(node=name, epoch="1", known=known)


def make_state(*nodes: Node) -> State:
    return State(nodes={node.node: node for node in nodes})


def best(state: State, promise_s: float) -> str:
    node = ImmediateStarts(state).best(LOAD, Slo("any", deadline_s=promise_s))
    return node.node if node is not None else ""


def test_of_two_empty_nodes_the_faster_one() -> None:
    assert best(make_state(make_node("n0", 0.05), make_node("n1", 0.04)), 20.0) == "n1"


def test_any_node_but_the_one_that_a_request_has_left() -> None:
    state = make_state(make_node("n0", 0.05), make_node("n1", 0.04))
    node = ImmediateStarts(state).best(LOAD, Slo("any", deadline_s=20.0), but="n1")
    assert node is state.nodes["n0"]


def test_of_equal_nodes_the_smaller_batch_then_the_first_by_name() -> None:
    state = make_state(make_node("n1", 0.05), make_node("n0", 0.05))
    assert best(state, 20.0) == "n0"
    make_group(state, "g0", waiting=0, running=1)
    place(state, "n0", "g0")
    assert best(state, 20.0) == "n1"


def test_of_nodes_of_which_nothing_is_known_the_emptiest() -> None:
    """Without rates, one more costs nobody anything: all that comes would begin at the first by name."""
    nodes = [Node(node=name, epoch="1", known=NodeState(name, "a", max_num_seqs=4)) for name in ("n0", "n1")]
    state = make_state(*nodes)
    make_group(state, "g0", waiting=0, running=1)
    place(state, "n0", "g0")
    assert best(state, 20.0) == "n1"


def test_what_has_time_goes_where_it_breaks_no_promise() -> None:
    """10 tokens in steps of 0.04 s and 0.01 s a row: one alone takes 0.5 s, of two each takes 0.6 s.

    One that has 0.58 s runs at the fast node. The other node takes 5.1 s: a newcomer of an hour goes there all the
    same; one of 5 s would be late there, so it is one promise either way, and time decides.
    """
    state = make_state(make_node("fast", 0.04), make_node("slow", 0.5))
    make_group(state, "g0", waiting=0, running=1, due_s=0.58)
    place(state, "fast", "g0")
    assert best(state, 3600.0) == "slow"
    assert best(state, 5.0) == "fast"


def test_where_no_promise_is_in_danger_time_decides() -> None:
    """Alone in 0.71 s at the slow node, or beside another in 0.6 s at the fast one, which it delays by 0.1 s of 20 s.

    In shares of 20 s: 0.0300 + 0.005 against 0.0355; the first token comes after 0.06 s or 0.071 s.
    """
    state = make_state(make_node("fast", 0.04), make_node("slow", 0.061))
    make_group(state, "g0", waiting=0, running=1, due_s=20.0)
    place(state, "fast", "g0")
    assert best(state, 20.0) == "fast"


def test_prompts_that_are_not_computed_yet_are_waited_for() -> None:
    state = make_state(make_node("n0", 0.05), make_node("n1", 0.05))
    state.nodes["n0"].unread = Unread(until_s=1.0)
    assert best(state, 20.0) == "n1"
    state.now_s = 1.0
    assert best(state, 20.0) == "n0"


def test_who_has_time_waits_rather_than_break_a_promise_and_while_somebody_urgent_waits() -> None:
    """0.24 s behind the first step for 10 tokens: enough for steps of 0.02 s, one alone, and not of 0.03 s."""
    state = make_state(make_node("n0", 0.01))
    make_group(state, "g0", waiting=0, running=1, due_s=0.25)
    place(state, "n0", "g0")
    assert (best(state, 3600.0), best(state, 20.0)) == ("", "n0")
    other = make_state(make_node("n0", 0.04))
    other.waiting_at["n0"], other.nodes["n0"].told = None, [("g1", 1, 3)]
    assert best(other, 3600.0) == "n0", "it was told to wait for others"
    other.nodes["n0"].told = [("g1", 1, None)]
    assert (best(other, 3600.0), best(other, 20.0)) == ("", "n0")


def test_a_request_needs_memory_beside_those_who_are_there() -> None:
    """Two hold prompts of 8 tokens, 5 drawn and a block of 16 but one: 56. One more needs 20, and 5 to grow."""
    for kv_tokens, seat in ((81, "n0"), (80, "")):
        node = make_node("n0", 0.05)
        rate = ModelRate("a", StepCost(0.05, 0.01, 0.0), kv_tokens=kv_tokens, kv_token_bytes=0, load_s=1.0)
        node.known = msgspec.structs.replace(node.known, rates=[rate])
        state = make_state(node)
        make_group(state, "g0", waiting=0, running=2, due_s=20.0)
        place(state, "n0", "g0")
        assert best(state, 20.0) == seat


def test_who_waits_with_slack_takes_no_place_from_who_is_in_a_hurry() -> None:
    """Of four places two are taken, and two requests with an hour wait until the batch has room for them."""
    state = make_state(make_node("n0", 0.05, max_num_seqs=4))
    make_group(state, "runs", waiting=0, running=2, due_s=20.0)
    make_group(state, "patient", waiting=2, due_s=3600.0)
    place(state, "n0", "runs", "patient")
    assert (best(state, 20.0), best(state, 3600.0)) == ("", "")
    state.nodes["n0"].patient = ["patient", "gone"]
    assert (best(state, 20.0), best(state, 3600.0)) == ("n0", "")


def test_nor_who_waits_with_slack_behind_the_groups_that_are_looked_at() -> None:
    """Of four places two are taken, and behind all that is looked at two requests wait that have time."""
    state = make_state(make_node("n0", 0.05, max_num_seqs=4))
    make_group(state, "runs", waiting=0, running=2, due_s=20.0)
    make_group(state, "behind", waiting=2, due_s=3600.0)
    place(state, "n0", "runs", "behind")
    node = state.nodes["n0"]
    node.max_running, node.limit = 3, BatchLimit(3, stale_at_s=1.0, num_behind=1, tokens_behind=8)
    assert best(state, 20.0) == "n0"
    node.limit = BatchLimit(3, stale_at_s=1.0)
    assert best(state, 20.0) == ""


def test_no_seat_where_the_batch_is_full_or_another_model_is_served_or_wanted() -> None:
    state = make_state(make_node("full", 0.05, max_num_seqs=2), make_node("other", 0.05, model="b"))
    make_group(state, "g0", waiting=1, running=0)
    make_group(state, "g1", waiting=0, running=1)
    place(state, "full", "g0")
    assert best(state, 20.0) == "full"
    place(state, "full", "g1")
    assert best(state, 20.0) == ""
    swapping = make_state(make_node("n0", 0.05))
    make_group(swapping, "g2", model="b")
    place(swapping, "n0", "g2")
    assert best(swapping, 20.0) == ""


def test_a_broken_model_has_no_seat() -> None:
    node = make_node("n0", 0.05)
    node.known = NodeState(node="n0", model="a", broken_models=["a"])
    assert best(make_state(node), 20.0) == ""


def test_nobody_begins_at_once_at_a_node_that_loads() -> None:
    """The one beside it is slower, and has its model."""
    fast = make_node("fast", 0.01)
    state = make_state(fast, make_node("slow", 0.05))
    assert best(state, 20.0) == "fast"
    fast.known = msgspec.structs.replace(fast.known, ready_at_s=5.0)
    assert best(state, 20.0) == "slow"
    assert best(make_state(fast), 20.0) == ""
