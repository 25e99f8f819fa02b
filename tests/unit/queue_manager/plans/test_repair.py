"""How a plan is taken over: what has happened since it was asked for goes before it."""

from __future__ import annotations

from msgspec.structs import replace

from services.queue_manager.plans import repair
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import DECODE, NodeState
from shared.messages.nodes.placement import ModelLoad
from tests.unit.queue_manager.books import make_group, make_queues, make_state, orders, place

NOW = 1.0


def apply(state: State, planned: dict[str, list[str]], *asked_running: str) -> dict[str, str]:
    """A plan that was asked for when these groups ran, and the nodes held what they hold."""
    repair.note_asked(state, list(asked_running))
    return take(state, planned)


def take(state: State, planned: dict[str, list[str]]) -> dict[str, str]:
    """The plan that was asked for."""
    return repair.apply(state, make_queues(state), planned, NOW)


def begin_load(state: State, name: str, model: str) -> None:
    """A node has begun to load a model."""
    state.nodes[name].known = NodeState(node=name, model=model, ready_at_s=NOW + 5.0)


# --- groups that wait -----------------------------------------------------------------------------------------------


def test_a_plan_orders_and_moves_groups() -> None:
    state = make_state(n0="a", n1="b")
    for gid in ("g0", "g1", "g2", "g3"):
        make_group(state, gid)
    place(state, "n0", "g0", "g1")
    place(state, "n1", "g2")
    assert apply(state, {"n0": ["g2", "g1"], "n1": ["g3", "g0"]}) == {}
    assert orders(state) == {"n0": ["g2", "g1"], "n1": ["g3", "g0"]}


def test_groups_and_nodes_that_are_gone_are_left_out() -> None:
    state = make_state(n0="a")
    make_group(state, "g1")
    apply(state, {"n0": ["gone", "g1"], "n9": ["gone"]})
    assert orders(state) == {"n0": ["g1"]}


def test_a_group_that_was_to_move_to_a_node_that_is_gone_stays() -> None:
    state = make_state(n0="a")
    make_group(state, "g0")
    place(state, "n0", "g0")
    apply(state, {"n0": [], "n9": ["g0"]})
    assert orders(state) == {"n0": ["g0"]}


def test_a_group_that_the_plan_does_not_know_is_put_behind_the_planned_ones_by_rule() -> None:
    state = make_state(n0="a")
    make_group(state, "late", kind="batch", due_s=3600.0)
    make_group(state, "new", due_s=20.0)
    make_group(state, "new and late", kind="batch", due_s=3600.0)
    make_group(state, "g0", kind="batch", due_s=10.0)
    place(state, "n0", "new", "late", "new and late", "g0")
    apply(state, {"n0": ["g0", "late"]})
    assert orders(state) == {"n0": ["g0", "new", "late", "new and late"]}


def test_a_node_that_the_plan_does_not_name_keeps_its_queue() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "g0")
    make_group(state, "g1")
    place(state, "n0", "g0", "g1")
    apply(state, {"n1": ["g0"]})
    assert orders(state) == {"n0": ["g1"], "n1": ["g0"]}


# --- groups that run ------------------------------------------------------------------------------------------------


def test_a_running_group_behind_a_waiting_one_gives_way() -> None:
    state = make_state(n0="a")
    make_group(state, "runs", kind="batch", running=2)
    make_group(state, "urgent")
    place(state, "n0", "runs", "urgent")
    apply(state, {"n0": ["urgent", "runs"]}, "runs")
    assert orders(state) == {"n0": ["urgent", "runs"]}
    assert state.nodes["n0"].yielding == ["runs"]


def test_a_running_group_behind_others_of_which_nobody_waits_goes_on() -> None:
    state = make_state(n0="a")
    make_group(state, "all run", waiting=0, running=2)
    make_group(state, "runs", running=1)
    place(state, "n0", "all run", "runs")
    apply(state, {"n0": ["all run", "runs"]}, "all run", "runs")
    assert state.nodes["n0"].yielding == []


def test_a_group_that_has_started_meanwhile_stays_in_front_and_gives_way_to_nobody() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "started", running=1)
    make_group(state, "g1")
    make_group(state, "new and started", running=1)
    place(state, "n0", "g1", "started", "new and started")
    assert apply(state, {"n0": ["g1"], "n1": ["started"]}) == {}
    assert orders(state) == {"n0": ["started", "new and started", "g1"], "n1": []}
    assert state.nodes["n0"].yielding == []


def test_a_running_group_stays_where_it_is_until_its_kv_was_handed_over() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "runs", running=1)
    make_group(state, "g1")
    place(state, "n0", "runs", "g1")
    assert apply(state, {"n0": ["g1"], "n1": ["runs"]}, "runs") == {"runs": "n1"}
    assert orders(state) == {"n0": ["runs", "g1"], "n1": []}


def test_so_does_a_group_whose_kv_was_kept_at_its_node() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "evicted", kv_at="n0")
    make_group(state, "handed over", kv_at="*")
    place(state, "n0", "evicted", "handed over")
    assert apply(state, {"n1": ["evicted", "handed over"]}) == {"evicted": "n1"}
    assert orders(state) == {"n0": ["evicted"], "n1": ["handed over"]}


def test_a_started_group_without_a_place_takes_the_plans() -> None:
    """One of its members runs at a node that has lost its place in a plan; the rest needs a node all the same."""
    state = make_state(n0="a", n1="a")
    make_group(state, "g0", running=1)
    apply(state, {"n1": ["g0"]})
    assert orders(state) == {"n0": [], "n1": ["g0"]}


def test_the_next_plan_says_anew_who_gives_way() -> None:
    state = make_state(n0="a")
    make_group(state, "runs", kind="batch", running=2)
    make_group(state, "urgent")
    place(state, "n0", "urgent", "runs")
    state.nodes["n0"].yielding = ["runs"]
    apply(state, {"n0": ["runs", "urgent"]}, "runs")
    assert state.nodes["n0"].yielding == []


# --- nodes that have begun to load ----------------------------------------------------------------------------------


def make_loading() -> State:
    """``n0`` held the model a when a plan was asked for, and loads b since then, for the head of its queue."""
    state = make_state(n0="a", n1="c")
    for gid in ("b0", "b1", "a0", "b2"):
        make_group(state, gid, model=gid[0])
    place(state, "n0", "b0", "b1", "a0", "b2")
    repair.note_asked(state, [])
    begin_load(state, "n0", "b")
    return state


def test_a_plan_made_for_the_model_before_leaves_those_in_front_for_whom_the_node_loads() -> None:
    state = make_loading()
    assert take(state, {"n0": ["a0", "b2", "b1", "b0"]}) == {}
    assert orders(state)["n0"] == ["b0", "b1", "a0", "b2"], "the rest is as planned"


def test_nor_does_it_move_them_to_another_node() -> None:
    state = make_loading()
    assert take(state, {"n0": ["a0"], "n1": ["b2", "b1", "b0"]}) == {}
    assert orders(state) == {"n0": ["b0", "b1", "a0"], "n1": ["b2"]}


def test_what_was_evicted_is_not_handed_over_from_there_either() -> None:
    state = make_state(n0="a", n1="c")
    make_group(state, "b0", model="b", kv_at="n0")
    place(state, "n0", "b0")
    repair.note_asked(state, [])
    begin_load(state, "n0", "b")
    assert take(state, {"n1": ["b0"]}) == {}
    assert orders(state) == {"n0": ["b0"], "n1": []}


def test_it_counts_as_much_once_the_model_is_there() -> None:
    state = make_loading()
    state.nodes["n0"].known = NodeState(node="n0", model="b")
    take(state, {"n0": ["a0", "b0", "b1", "b2"]})
    assert orders(state)["n0"] == ["b0", "b1", "a0", "b2"]


def test_a_plan_that_knew_of_the_load_orders_and_moves_freely() -> None:
    state = make_loading()
    repair.note_asked(state, [])
    assert take(state, {"n0": ["a0", "b1"], "n1": ["b2", "b0"]}) == {}
    assert orders(state) == {"n0": ["a0", "b1"], "n1": ["b2", "b0"]}


def test_what_a_node_loads_for_nobody_in_front_keeps_nothing_there() -> None:
    state = make_state(n0="a")
    for gid in ("a0", "b0"):
        make_group(state, gid, model=gid[0])
    place(state, "n0", "a0", "b0")
    repair.note_asked(state, [])
    begin_load(state, "n0", "b")
    take(state, {"n0": ["a0", "b0"]})
    assert orders(state)["n0"] == ["a0", "b0"]


def test_those_who_only_run_are_passed_over_in_the_search_for_them() -> None:
    """Models that share the device: who runs goes on beside the change."""
    state = make_state(n0="a")
    make_group(state, "runs", waiting=0, running=1)
    make_group(state, "b0", model="b")
    make_group(state, "a0")
    place(state, "n0", "runs", "b0", "a0")
    repair.note_asked(state, ["runs"])
    begin_load(state, "n0", "b")
    take(state, {"n0": ["runs", "a0", "b0"]})
    assert orders(state)["n0"] == ["b0", "runs", "a0"]


def test_a_node_that_has_come_since_has_changed_nothing() -> None:
    state = make_state(n0="a")
    repair.note_asked(state, [])
    state.nodes["n1"] = make_state(n1="b").nodes["n1"]
    for gid in ("b0", "c0"):
        make_group(state, gid, model=gid[0])
    place(state, "n1", "b0", "c0")
    take(state, {"n1": ["c0", "b0"]})
    assert orders(state)["n1"] == ["c0", "b0"]


# --- models for those who come --------------------------------------------------------------------------------------


def awaited(state: State, *loads: ModelLoad) -> dict[str, str]:
    repair.note_asked(state, [])
    repair.await_models(state, make_queues(state), loads)
    return {name: node.awaits for name, node in state.nodes.items()}


def test_a_node_awaits_a_model_until_a_plan_says_otherwise() -> None:
    state = make_state(n0="a", n1="a")
    assert awaited(state, ModelLoad("n0", "b"), ModelLoad("gone", "b")) == {"n0": "b", "n1": ""}
    assert awaited(state, ModelLoad("n1", "b")) == {"n0": "", "n1": "b"}


def test_no_model_is_awaited_where_somebody_has_come_to_wait_or_it_is_there_or_broken() -> None:
    state = make_state(n0="a", n1="b", n2="a")
    make_group(state, "g0")
    place(state, "n0", "g0")
    state.nodes["n2"].known = NodeState("n2", "a", broken_models=["b"])
    assert awaited(state, *(ModelLoad(name, "b") for name in ("n0", "n1", "n2"))) == {"n0": "", "n1": "", "n2": ""}


def test_no_model_is_awaited_where_another_has_begun_to_be_loaded_since() -> None:
    state = make_state(n0="a")
    repair.note_asked(state, [])
    begin_load(state, "n0", "c")
    repair.await_models(state, make_queues(state), [ModelLoad("n0", "b")])
    assert state.nodes["n0"].awaits == ""


def decoding(state: State, *names: str) -> None:
    for name in names:
        state.nodes[name].known = replace(state.nodes[name].known, phases=DECODE)


def test_a_node_that_decodes_loads_what_it_was_told_unless_another_is_to_or_it_another() -> None:
    state = make_state(n0="a", n1="a")
    decoding(state, "n0", "n1")
    assert awaited(state, ModelLoad("n0", "b")) == {"n0": "b", "n1": ""}
    assert awaited(state, ModelLoad("n1", "c")) == {"n0": "b", "n1": "c"}
    assert awaited(state) == {"n0": "b", "n1": "c"}
    assert awaited(state, ModelLoad("n0", "d")) == {"n0": "d", "n1": "c"}
    assert awaited(state, ModelLoad("n1", "d")) == {"n0": "", "n1": "d"}


def test_who_comes_late_to_a_node_that_decodes_is_served_and_who_needs_another_model_goes_before() -> None:
    state = make_state(n0="a", n1="a")
    decoding(state, "n0", "n1")
    make_group(state, "g0")
    make_group(state, "g1", model="c")
    place(state, "n0", "g0")
    place(state, "n1", "g1")
    assert awaited(state, ModelLoad("n0", "b"), ModelLoad("n1", "b")) == {"n0": "b", "n1": ""}
