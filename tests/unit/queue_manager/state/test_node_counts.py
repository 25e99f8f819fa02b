"""Who stands at a node: a number that is kept up, and promises that are summed up anew after a change."""

from __future__ import annotations

import math

from services.queue_manager.state.node import Node, Promises, TenantShare
from services.queue_manager.state.node_counts import (
    PATIENCE_S,
    counted_members,
    counted_running,
    forget_promises,
    is_full,
    note_members,
    promised_ends,
    promises,
    recount,
)
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import NodeState
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import make_group, make_state, place
from tests.unit.queue_manager.made import LARGE, MadeGroups


def test_members_count_by_what_they_were_promised() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=0, running=2, due_s=20.0)
    make_group(state, "g1", waiting=1, running=2, due_s=60.0)
    place(state, "n0", "g0", "g1")
    assert state.nodes["n0"].num_members == 5
    assert promises(state, state.nodes["n0"]).per_s == 3 / 60 + 2 / 20


def test_a_promise_beyond_patience_counts_as_patience() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=3, due_s=86_400.0)
    place(state, "n0", "g0")
    assert promises(state, state.nodes["n0"]).per_s == 3 / PATIENCE_S


def test_another_model_in_the_queue_leaves_no_room() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", model="b")
    place(state, "n0", "g0")
    assert promises(state, state.nodes["n0"]).per_s == math.inf


def test_a_batch_is_full_when_all_its_places_are_taken() -> None:
    known = NodeState(node="n0", model="a", max_num_seqs=3)
    state = State(nodes={"n0": Node(node="n0", epoch="1", known=known)})
    node = state.nodes["n0"]
    for gid, fills in (("g0", False), ("g1", True)):
        make_group(state, gid, waiting=1, running=fills)
        place(state, "n0", gid)
        assert is_full(node) == fills
    note_members(state, state.groups["g1"], -1, 0)
    assert not is_full(node)


def test_a_sum_is_kept_until_something_changes() -> None:
    state = make_state(n0="a")
    node = state.nodes["n0"]
    assert promises(state, node) == Promises()
    assert node.promises == Promises()
    make_group(state, "g0", due_s=20.0)
    place(state, "n0", "g0")
    assert node.promises is None
    assert promises(state, node) == node.promises == Promises(1 / 20, [(20.0, math.inf, 1)], 8)
    forget_promises(node)
    assert node.promises is None


def test_what_was_promised_is_counted_by_kind_and_what_is_held_by_tokens() -> None:
    """Two and one of 20 s, one of 60 s; four prompts of 8 tokens. Another model's do not count.

    They leave no room where they are the first who wait: the node is about to load their model.
    """
    state = make_state(n0="a")
    make_group(state, "g0", waiting=1, running=1, due_s=20.0)
    make_group(state, "g1", waiting=0, running=1, due_s=60.0)
    make_group(state, "g2", waiting=0, running=1, due_s=20.0)
    place(state, "n0", "g0", "g1", "g2")
    found = promises(state, state.nodes["n0"])
    assert sorted(found.kinds) == [(20.0, math.inf, 3), (60.0, math.inf, 1)]
    assert found.known_tokens == 32
    make_group(state, "g3", model="b")
    place(state, "n0", "g3")
    assert promises(state, state.nodes["n0"]) == found, "whoever waits before them is served before them"
    state.nodes["n0"].queue.insert(0, state.nodes["n0"].queue.pop())
    forget_promises(state.nodes["n0"])
    assert promises(state, state.nodes["n0"]) == Promises(math.inf, found.kinds, 32)


def test_ends_are_known_without_the_sums() -> None:
    """Of the model that the node holds: two groups of 20 s, one without an end."""
    state = make_state(n0="a")
    make_group(state, "g0", waiting=1, running=1, due_s=20.0)
    make_group(state, "g1", waiting=0, running=1)
    make_group(state, "g2", waiting=1, due_s=20.0)
    make_group(state, "g3", model="b", due_s=7.0)
    state.requests["g1.0"].slo = Slo("pace", tpot_s=0.1)
    place(state, "n0", "g0", "g1", "g2", "g3")
    node = state.nodes["n0"]
    assert set(promised_ends(node)) == {(20.0, math.inf), (math.inf, 0.1)}
    assert node.promises is None
    assert set(promised_ends(node)) == set(promises(state, node).ends)


def test_a_node_that_is_to_load_another_model_leaves_no_room() -> None:
    state = make_state(n0="a")
    state.nodes["n0"].awaits = "b"
    assert promises(state, state.nodes["n0"]).per_s == math.inf


def test_a_snapshot_without_counts_is_counted() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "g0", waiting=2, running=1)
    place(state, "n1", "g0")
    state.nodes["n1"].num_members = state.nodes["n1"].num_running = 0
    recount(state)
    assert [(node.num_members, node.num_running) for node in state.nodes.values()] == [(0, 0), (3, 1)]


def test_those_who_run_are_counted_as_they_are_pulled_and_as_they_leave() -> None:
    groups = MadeGroups(LARGE)
    state = groups.state
    node = state.nodes["n0"] = make_state(n0="a").nodes["n0"]
    r0, r1, r2 = (groups.add(name) for name in ("r0", "r1", "r2"))
    groups.pull(r0, "n0", 0.0)
    place(state, "n0", r0.group)
    assert (node.num_members, node.num_running) == (3, 1)
    groups.pull(r1, "n0", 0.0)
    assert (node.num_members, node.num_running) == (3, 2)
    groups.leave(r2)
    assert (node.num_members, node.num_running) == (2, 2)
    groups.leave(r0)
    assert (node.num_members, node.num_running) == (1, 1)
    assert (counted_members(state, node), counted_running(state, node)) == (1, 1)


def test_a_recount_keeps_tenants_in_the_order_in_which_they_came() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=1, running=2, tenant="late")
    make_group(state, "g1", waiting=3, tenant="early")
    place(state, "n0", "g1", "g0")
    node = state.nodes["n0"]
    node.queue.reverse()
    node.shares["gone"] = TenantShare(1, 1, 5.0)
    recount(state)
    assert list(node.shares.items()) == [
        ("early", TenantShare(3, 0)),
        ("late", TenantShare(3, 2)),
        ("gone", TenantShare(0, 0, 5.0)),
    ]
