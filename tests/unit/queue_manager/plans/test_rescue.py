"""Who is far too late goes first, but not before those for whom a load has begun."""

from __future__ import annotations

from services.queue_manager.plans.rescue import OVERDUE_S, RESCUE_INTERVAL_S, rescue
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import NodeState
from tests.unit.queue_manager.books import make_group, make_state, orders, place

NOW = 100.0


def make(*gids: str) -> State:
    """``n0`` holds a; in its queue groups that are named by their model, of which those of c are far too late."""
    state = make_state(n0="a")
    for gid in gids:
        make_group(state, gid, model=gid[0], due_s=NOW - OVERDUE_S - 1.0 if gid[0] == "c" else NOW + 20.0)
    place(state, "n0", *gids)
    return state


def begin_load(state: State, model: str) -> None:
    state.nodes["n0"].known = NodeState(node="n0", model=model, ready_at_s=NOW + 5.0)


def test_who_is_far_too_late_goes_to_the_front() -> None:
    state = make("a0", "b0", "c0")
    rescue(state, state.nodes["n0"], NOW)
    assert orders(state)["n0"] == ["c0", "a0", "b0"]
    assert state.nodes["n0"].rescued == "c0"


def test_who_is_less_late_keeps_its_place() -> None:
    state = make("a0", "c0")
    state.groups["c0"].start_by_s = NOW - OVERDUE_S
    rescue(state, state.nodes["n0"], NOW)
    assert orders(state)["n0"] == ["a0", "c0"]


def test_one_goes_to_the_front_in_a_while() -> None:
    state = make("a0", "c0", "c1")
    node = state.nodes["n0"]
    rescue(state, node, NOW)
    state.groups["c0"].running = {"c0.0": None}
    state.groups["c0"].waiting = {}
    node.queue = ["c0", "a0", "c1"]
    rescue(state, node, NOW + RESCUE_INTERVAL_S - 1.0)
    assert orders(state)["n0"] == ["c0", "a0", "c1"]
    rescue(state, node, NOW + RESCUE_INTERVAL_S)
    assert orders(state)["n0"] == ["c0", "c1", "a0"]


def test_while_a_load_runs_those_for_whom_it_is_made_stay_in_front() -> None:
    state = make("a0", "a1", "b0", "c0")
    begin_load(state, "a")
    rescue(state, state.nodes["n0"], NOW)
    assert orders(state)["n0"] == ["a0", "a1", "c0", "b0"], "behind them it is first"


def test_once_the_model_is_there_it_goes_to_the_front_after_all() -> None:
    state = make("a0", "b0", "c0")
    node = state.nodes["n0"]
    begin_load(state, "a")
    rescue(state, node, NOW)
    node.known = NodeState(node="n0", model="a")
    rescue(state, node, NOW + 5.0)
    assert orders(state)["n0"] == ["c0", "a0", "b0"]


def test_one_for_whom_the_node_loads_has_been_helped() -> None:
    state = make("a0", "c0", "b0")
    begin_load(state, "c")
    rescue(state, state.nodes["n0"], NOW)
    assert orders(state)["n0"] == ["a0", "c0", "b0"]
