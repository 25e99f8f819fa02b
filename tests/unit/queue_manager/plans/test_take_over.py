"""What devices with room take over: who waits elsewhere at once, who runs elsewhere where that ends sooner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import ArrivalRates
from services.queue_manager.plans.take_over import LOOK_S, MAX_RESTARTS, TakeOvers
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.node import Node
from services.queue_manager.state.plan_state import HandOver
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import OPTIONS, make_group, orders, place


def make_node(name: str, step_s: float, model: str = "a") -> Node:
    rate = ModelRate("a", StepCost(step_s, 0.01, 0.0), kv_tokens=0, kv_token_bytes=1_000_000, load_s=0.0)
    known = NodeState(name, model, max_num_seqs=4, rates=[rate])
    return Node(node=name, epoch="1", known=known)


def know(node: Node, **fields: Any) -> None:
    """Of its model."""
    rates = [replace(rate, **fields) for rate in node.known.rates]
    node.known = msgspec.structs.replace(node.known, rates=rates)


def make_state(*nodes: Node) -> State:
    """Of late, one request of 8 tokens and an answer of 10 has come."""
    state = State(nodes={node.node: node for node in nodes})
    come = Request("r", "gw", "a", Slo("interactive", deadline_s=20.0), "t", 8, 10, 0.0, 0)
    ArrivalRates(state.flows, state.lifetimes).observe(come, 0.0)
    return state


def make(state: State) -> TakeOvers:
    groups = RequestGroups(state, OPTIONS, {})
    return TakeOvers(state, groups, VirtualQueues(state, groups, OPTIONS))


def test_a_device_with_room_takes_over_the_group_due_first_of_those_that_wait() -> None:
    state = make_state(make_node("n0", 0.1), make_node("n1", 0.1))
    for gid, due_s in (("later", 30.0), ("soon", 20.0)):
        make_group(state, gid, due_s=due_s)
    make_group(state, "begun", waiting=1, running=1, due_s=10.0)
    place(state, "n0", "begun", "later", "soon")
    state.waiting_at["n0"] = None
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state) == {"n0": ["begun", "later"], "n1": ["soon"]}
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state)["n1"] == ["soon"], "somebody waits there now"


def test_who_waits_behind_hundreds_of_groups_that_run_is_seen() -> None:
    state = make_state(make_node("n0", 0.1), make_node("n1", 0.1))
    running = [f"runs{number}" for number in range(300)]
    for gid in running:
        make_group(state, gid, waiting=0, running=1)
    make_group(state, "waits")
    place(state, "n0", *running, "waits")
    state.waiting_at["n0"] = None
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state)["n1"] == ["waits"]


def test_what_waits_stays_where_the_other_has_no_room_or_another_model() -> None:
    full, other = make_node("n1", 0.1), make_node("n2", 0.1, model="b")
    state = make_state(make_node("n0", 0.1), full, other)
    make_group(state, "waits")
    make_group(state, "begun", waiting=0, running=1)
    place(state, "n0", "begun", "waits")
    make_group(state, "runs", waiting=0, running=4)
    place(state, "n1", "runs")
    state.waiting_at["n0"] = None
    make(state).move_waiting(["n1", "n2"], 0.0)
    assert orders(state)["n0"] == ["begun", "waits"]


def test_a_node_where_nothing_runs_begins_by_itself() -> None:
    state = make_state(make_node("n0", 0.1), make_node("n1", 0.1))
    make_group(state, "waits")
    place(state, "n0", "waits")
    state.waiting_at["n0"] = None
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state)["n0"] == ["waits"]


def test_who_is_patient_does_not_go_where_one_more_does_harm() -> None:
    """Beside one that has 0.25 s for 10 tokens, behind a step and a prompt: steps of 0.02 s alone, then of 0.03 s."""
    state = make_state(make_node("n0", 0.01), make_node("n1", 0.01))
    make_group(state, "waits", due_s=3600.0)
    make_group(state, "begun", waiting=0, running=1)
    place(state, "n0", "begun", "waits")
    make_group(state, "runs", waiting=0, running=1, due_s=0.34)
    place(state, "n1", "runs")
    state.waiting_at["n0"], state.nodes["n0"].patient = None, ["waits"]
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state)["n0"] == ["begun", "waits"]
    state.nodes["n0"].patient = []
    make(state).move_waiting(["n1"], 0.0)
    assert orders(state)["n1"] == ["runs", "waits"]


def a_slow_one(step_s: float) -> State:
    """One runs at a node with such steps, has drawn nothing and has 10 tokens before it; the other node is idle."""
    state = make_state(make_node("n0", step_s), make_node("n1", 0.09))
    make_group(state, "runs", waiting=0, running=1)
    place(state, "n0", "runs")
    return state


def test_an_idle_device_takes_over_what_runs_where_that_gains_several_times_what_it_costs() -> None:
    """8 tokens of 1 MB are two copies of 8 ms, 0.8 ms and 0.5 s: it must gain 1.5504 s, with 10 tokens 0.155 s each."""
    assert make(a_slow_one(0.2455)).targets(["n1"], 0.0) == {"runs": "n1"}
    assert make(a_slow_one(0.245)).targets(["n1"], 0.0) == {}


def test_what_is_sooner_computed_than_moved_is_computed_again() -> None:
    """8 tokens of 10 MB take 0.168 s to move: 0.5 s and 8 rows of 0.01 s, so 1.74 s by 10 tokens."""
    for step_s, moves in ((0.265, True), (0.263, False)):
        state = a_slow_one(step_s)
        know(state.nodes["n1"], kv_token_bytes=10_000_000)
        assert bool(make(state).targets(["n1"], 0.0)) is moves


def test_so_is_what_has_no_room_there() -> None:
    for max_image_bytes, step_s, moves in ((8_000_000, 0.263, True), (7_999_999, 0.263, False)):
        state = a_slow_one(step_s)
        state.nodes["n1"].known = msgspec.structs.replace(state.nodes["n1"].known, max_image_bytes=max_image_bytes)
        assert bool(make(state).targets(["n1"], 0.0)) is moves


def test_so_is_what_lies_otherwise_there() -> None:
    for there, step_s, moves in (("x", 0.263, True), ("y", 0.263, False), ("y", 0.265, True)):
        state = a_slow_one(step_s)
        know(state.nodes["n0"], kv_format="x")
        know(state.nodes["n1"], kv_format=there)
        assert bool(make(state).targets(["n1"], 0.0)) is moves


def test_an_idle_device_looks_again_while_another_is_slower() -> None:
    state = a_slow_one(0.245)
    take_overs = make(state)
    assert take_overs.wake_at is None
    assert take_overs.targets(["n1"], 0.0) == {}
    assert take_overs.wake_at == LOOK_S
    state.nodes["n0"].known = make_node("n0", 2.0).known
    assert take_overs.nodes_to_look_at([], 0.05) == []
    names = take_overs.nodes_to_look_at(["n0"], 1.0)
    assert names == ["n0", "n1"]
    assert take_overs.targets(names, 1.0) == {"runs": "n1"}
    state.groups["runs"].running = {}
    state.nodes["n0"].num_running = 0
    assert take_overs.targets(take_overs.nodes_to_look_at([], 2.0), 2.0) == {}
    assert take_overs.wake_at is None, "nothing runs more slowly"
    state.waiting_at["n0"] = None
    take_overs.move_waiting([], 3.0)
    assert take_overs.wake_at == 3.0 + LOOK_S, "somebody waits"


def test_only_an_idle_device_does_and_only_one_at_a_time() -> None:
    state = a_slow_one(0.25)
    state.nodes["n1"].known = msgspec.structs.replace(state.nodes["n1"].known, ready_at_s=5.0)
    assert make(state).targets(["n1"], 0.0) == {}, "its model is on the way"
    state = a_slow_one(0.25)
    state.hand_overs["runs"] = HandOver("n1", 0.0)
    assert make(state).targets(["n1"], 0.0) == {}
    state = a_slow_one(0.25)
    state.waiting_at["n0"] = None
    assert make(state).targets(["n1"], 0.0) == {}, "who waits goes first"
    state = a_slow_one(0.25)
    state.nodes["n2"] = make_node("n2", 0.09)
    assert make(state).targets(["n1", "n2"], 0.0) == {"runs": "n1"}


def test_a_member_that_waits_in_a_group_that_has_begun_goes_where_it_could_begin() -> None:
    """The first of those that wait, after `STUCK_S`, one for each node with room; not for ever."""
    state = make_state(make_node("n0", 0.1), make_node("n1", 0.1))
    make_group(state, "begun", waiting=2, running=1)
    place(state, "n0", "begun")
    make_group(state, "runs", waiting=0, running=1)
    place(state, "n1", "runs")
    state.waiting_at["n0"] = None
    take_overs = make(state)
    assert take_overs.stuck(["n0", "n1"], 0.19) == []
    assert [one.request_id for one in take_overs.stuck(["n0", "n1"], 0.2)] == ["begun.0"]
    state.requests["begun.0"].attempt = MAX_RESTARTS
    assert take_overs.stuck(["n1"], 0.25) == []
    state.requests["begun.0"].attempt = 0
    state.nodes["n1"].known = msgspec.structs.replace(state.nodes["n1"].known, max_num_seqs=1)
    assert take_overs.stuck(["n1"], 0.25) == [], "it has no place"
