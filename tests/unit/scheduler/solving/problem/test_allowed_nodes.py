"""Where a group may be placed, with each serving operation and without."""

from __future__ import annotations

import msgspec

from services.scheduler.solving.problem.allowed_nodes import places
from shared.messages.nodes.placement import GroupLoad, Operations
from shared.messages.requests.requests import HANDED_OVER
from tests.unit.scheduler.problems import load, node, running

NODES = [node("n0", "a"), node("n1", "b"), node("n2", "a")]


def reach(group: GroupLoad, **without: bool) -> tuple[int, ...]:
    return places(NODES, group, Operations(**without))


def test_with_all_operations_everything_may_go_everywhere() -> None:
    for group in (load("g"), load("g", node="n1"), running("g", "n0"), load("g", node="n0", kv_at="n0")):
        assert reach(group) == (0, 1, 2)


def test_without_swaps_a_group_goes_where_its_model_is() -> None:
    assert reach(load("g", "a"), swap=False) == (0, 2)
    assert reach(load("g", "b"), swap=False) == (1,)
    assert reach(load("g", "c"), swap=False) == (), "it waits until a node has its model"


def test_without_balance_a_group_that_has_a_node_stays() -> None:
    assert reach(load("g", node="n1"), balance=False) == (1,)
    assert reach(load("g"), balance=False) == (0, 1, 2)
    assert reach(load("g", node="gone"), balance=False) == (0, 1, 2)
    assert reach(running("g", "n0"), balance=False) == (0, 1, 2), "that is migration"


def test_without_migration_what_has_kv_at_a_node_stays() -> None:
    assert reach(running("g", "n2"), migrate=False) == (2,)
    assert reach(load("g", node="n2", kv_at="n2"), migrate=False) == (2,)
    assert reach(load("g", kv_at=HANDED_OVER), migrate=False) == (0, 1, 2)
    assert reach(load("g", node="n2"), migrate=False) == (0, 1, 2)


def test_a_running_group_of_which_some_wait_stays() -> None:
    partly = msgspec.structs.replace(running("g", "n0"), num_waiting=1)
    assert reach(partly) == (0,)


def test_kept_kv_that_waits_moves_by_balance_and_migration_together() -> None:
    assert reach(load("g", node="n2", kv_at="n2"), balance=False) == (2,)


def test_a_model_goes_where_it_can_be_loaded() -> None:
    nodes = [node("n0", "a", broken="b"), node("n1", "c")]
    assert places(nodes, load("g", "b"), Operations()) == (1,)


def test_what_an_engine_lacks_goes_to_a_node_that_has_it_or_to_any_where_none_has() -> None:
    lacking = [msgspec.structs.replace(node(name, "a"), lacks=["beam search"]) for name in ("n0", "n1")]
    beams = msgspec.structs.replace(load("g", "a"), needs="beam search")
    assert places([*lacking, node("n2", "b")], beams, Operations()) == (2,)
    assert places([*lacking, node("n2", "b")], load("g", "a"), Operations()) == (0, 1, 2)
    assert places(lacking, beams, Operations()) == (0, 1), "which tells its clients why not"


def test_a_model_that_is_broken_everywhere_may_go_everywhere_so_that_its_clients_hear_of_it() -> None:
    assert places([node("n0", "a", broken="b")], load("g", "b"), Operations()) == (0,)


def test_each_phase_goes_to_its_nodes_or_to_all_that_have_the_model() -> None:
    kinds = {"p": "prefill", "d": "decode", "b": "both"}
    nodes = [msgspec.structs.replace(node(name, "a"), phases=phases) for name, phases in kinds.items()]
    fresh, resumed = load("g", "a"), load("g", "a", kv_at=HANDED_OVER)
    assert places(nodes, fresh, Operations()) == (0, 2)
    assert places(nodes, resumed, Operations()) == (1, 2)
    assert places(nodes[:1], resumed, Operations()) == (0,)
    assert places(nodes[1:2], fresh, Operations()) == (0,)
    assert places(nodes, running("g", "d"), Operations()) == (0, 1, 2), "where it runs it may stay"


def test_what_a_node_that_decodes_would_be_sent_goes_nowhere_else() -> None:
    kinds = {"p": "prefill", "d": "decode", "b": "both"}
    nodes = [msgspec.structs.replace(node(name, "a"), phases=phases) for name, phases in kinds.items()]
    apart = msgspec.structs.replace(load("g", "b", kv_at=HANDED_OVER), wants_phase=True)
    assert places(nodes, apart, Operations()) == (1, 2)
    assert places(nodes, apart, Operations(swap=False)) == ()
    assert places(nodes[:1], apart, Operations()) == (0,), "no node can do it: as with what none can serve"
