"""Where a newcomer begins at once: by the share of what was promised that it costs all."""

from __future__ import annotations

import msgspec
import pytest

from services.queue_manager.queues.immediate_start import ImmediateStarts
from services.queue_manager.state.node_counts import PATIENCE_S
from services.queue_manager.state.state import Node, State
from shared.messages.nodes import NodeState
from shared.messages.placement import GroupLoad
from shared.messages.step_cost import ModelRate, StepCost
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
    node = ImmediateStarts(state).best(LOAD, promise_s)
    return node.node if node is not None else ""


def test_of_two_empty_nodes_the_faster_one() -> None:
    assert best(make_state(make_node("n0", 0.05), make_node("n1", 0.04)), 20.0) == "n1"


def test_of_equal_nodes_the_smaller_batch_then_the_first_by_name() -> None:
    state = make_state(make_node("n1", 0.05), make_node("n0", 0.05))
    assert best(state, 20.0) == "n0"
    make_group(state, "g0", waiting=0, running=1)
    place(state, "n0", "g0")
    assert best(state, 20.0) == "n1"


@pytest.mark.parametrize(("promise_s", "seat"), [(20.0, "fast"), (3600.0, "slow")])
def test_what_is_not_urgent_goes_where_it_disturbs_nobody(promise_s: float, seat: str) -> None:
    """It answers in 0.6 s beside another at the fast node, and delays that by 0.1 s of 20 s; alone in 0.7 s at the
    slow one. In shares of 20 s: 0.6 + 0.1 against 0.71. In shares of a far promise the delay decides.
    """
    state = make_state(make_node("fast", 0.04), make_node("slow", 0.061))
    make_group(state, "g0", waiting=0, running=1, due_s=20.0)
    place(state, "fast", "g0")
    assert best(state, promise_s) == seat


def test_a_promise_beyond_patience_counts_as_patience() -> None:
    """All far promises alike: else a request due in a week would be put beside anybody, however slow."""
    state = make_state(make_node("fast", 0.04), make_node("slow", 0.5))
    make_group(state, "g0", waiting=0, running=1, due_s=20.0)
    place(state, "fast", "g0")
    fast, slow = 0.6 / PATIENCE_S + 0.1 / 20, 5.1 / PATIENCE_S
    assert fast < slow
    assert best(state, 604_800.0) == "fast"


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
