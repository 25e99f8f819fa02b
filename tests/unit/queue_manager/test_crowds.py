"""Who stands at a node: counted once, and anew after each change."""

from __future__ import annotations

from services.queue_manager.crowds import PATIENCE_S, counted, crowd_at, note_change
from services.queue_manager.state import Crowd, Node, State
from shared.messages import NodeState
from tests.unit.queue_manager.books import make_group, make_state, place


def make_node(name: str, max_num_seqs: int) -> Node:
    return Node(node=name, epoch="1", known=NodeState(node=name, model="a", max_num_seqs=max_num_seqs))


def test_members_are_counted_by_what_they_were_promised() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=0, running=2, due_s=20.0)
    make_group(state, "g1", waiting=1, running=2, due_s=60.0)
    place(state, "n0", "g0", "g1")
    assert counted(state, state.nodes["n0"]) == Crowd(5, 3 / 60 + 2 / 20)


def test_a_promise_beyond_patience_counts_as_patience() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=3, due_s=86_400.0)
    place(state, "n0", "g0")
    assert counted(state, state.nodes["n0"]) == Crowd(3, 3 / PATIENCE_S)


def test_nobody_begins_at_once_in_a_full_batch_or_behind_another_model() -> None:
    state = State(nodes={"n0": make_node("n0", max_num_seqs=2), "n1": make_node("n1", max_num_seqs=8)})
    make_group(state, "g0", waiting=1, running=1)
    make_group(state, "g1", model="b")
    place(state, "n0", "g0")
    place(state, "n1", "g1")
    assert [counted(state, node) for node in state.nodes.values()] == [Crowd(None), Crowd(None)]


def test_what_was_counted_is_kept_until_something_changes() -> None:
    state = make_state(n0="a")
    node = state.nodes["n0"]
    empty = crowd_at(state, node)
    assert empty == Crowd(0, 0.0)
    assert crowd_at(state, node) is empty
    make_group(state, "g0", due_s=20.0)
    place(state, "n0", "g0")
    assert crowd_at(state, node) == Crowd(1, 1 / 20)
    note_change(state, "n0")
    assert node.crowd is None
    note_change(state, "")
