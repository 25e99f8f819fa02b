"""What is to be seen of the scheduler."""

from __future__ import annotations

import msgspec

from services.scheduler.core import SchedulerCore
from services.scheduler.metrics import measure
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeGone, Scaled
from shared.messages.nodes.placement import GroupLoad, Plan, PlanRequest, Solved
from tests.samples import samples_of


def beat(node: str, model: str, *, loading: str = "", broken_models: tuple[str, ...] = ()) -> Heartbeat:
    return Heartbeat(
        node=node,
        epoch=f"{node}.1",
        facts=NodeFacts(device="cpu", swap_s=0.0, broken_models=list(broken_models)),
        model=model,
        num_blocks=100,
        num_free_blocks=100,
        num_running=0,
        num_waiting=0,
        loading=loading,
    )


def test_without_nodes_it_says_so() -> None:
    assert samples_of(measure(SchedulerCore(ClusterConfig()))) == {
        ("treadle_nodes",): 0,
        ("treadle_nodes_lost",): 0,
        ("treadle_node_losses_total",): 0,
        ("treadle_plans_total",): 0,
        ("treadle_planned_swaps_total",): 0,
    }


def test_nodes_demand_and_plans() -> None:
    core = SchedulerCore(ClusterConfig())
    core.handle(beat("n0", "a"), 1.0)
    core.handle(beat("n1", "b", broken_models=("c",)), 1.0)
    core.handle(beat("n2", "a"), 1.0)
    group = GroupLoad("g0", model="a", deadline_s=9.0, num_waiting=2, mean_output_tokens=15.0)
    core.handle(PlanRequest(version=1, groups=[group]), 2.0)
    core.handle(Solved(plan=Plan(version=1, queues={"n0": ["g0"]}, num_swaps=3)), 3.0)
    core.handle(NodeGone(node="n2", epoch="n2.1"), 4.0)
    found = samples_of(measure(core))
    demand_tokens = found.pop(("treadle_model_demand_tokens", "a"))
    assert demand_tokens == core.state.demand["a"] > 0
    assert found == {
        ("treadle_nodes",): 2,
        ("treadle_nodes_lost",): 0,
        ("treadle_node_losses_total",): 0,
        ("treadle_node_info", "n0", "cpu", "a"): 1,
        ("treadle_node_info", "n1", "cpu", "b"): 1,
        ("treadle_broken_models", "n1", "c"): 1,
        ("treadle_plans_total",): 1,
        ("treadle_planned_swaps_total",): 3,
    }


def test_what_a_node_tells_of_itself_and_cannot_be() -> None:
    core = SchedulerCore(ClusterConfig())
    facts = msgspec.structs.replace(beat("n0", "a").facts, swap_s=-1.0, step_tokens=-512)
    core.handle(msgspec.structs.replace(beat("n0", "a"), facts=facts), 1.0)
    core.handle(beat("n1", "a"), 1.0)
    doubted = {key: value for key, value in samples_of(measure(core)).items() if key[0] == "treadle_doubted_facts"}
    assert doubted == {("treadle_doubted_facts", "n0", "swap_s"): 1, ("treadle_doubted_facts", "n0", "step_tokens"): 1}
    core.handle(beat("n0", "a"), 2.0)
    assert not [key for key in samples_of(measure(core)) if key[0] == "treadle_doubted_facts"]


def test_pools() -> None:
    pool = NodePool(name="p", max_nodes=3, start_s=30)
    core = SchedulerCore(ClusterConfig(pools=[pool], scaling=ScalingOptions(provider="process")))
    core.handle(Solved(plan=Plan(version=1, queues={}, num_nodes={"p": 2})), 1.0)
    core.handle(Scaled(pool="p", num_nodes=1, error="no room"), 2.0)
    core.handle(beat("p-0", "a"), 13.0)
    found = {names: value for names, value in samples_of(measure(core)).items() if names[0].startswith("treadle_pool")}
    assert found == {
        ("treadle_pool_nodes", "p", "wanted"): 2,
        ("treadle_pool_nodes", "p", "live"): 1,
        ("treadle_pool_nodes", "p", "serving"): 1,
        ("treadle_pool_start_seconds", "p"): 12.0,
        ("treadle_pool_changes_total", "p", "up"): 1,
        ("treadle_pool_changes_total", "p", "down"): 0,
        ("treadle_pool_errors_total", "p"): 1,
    }


def test_a_node_that_loads_serves_nobody() -> None:
    pool = NodePool(name="p", max_nodes=3)
    core = SchedulerCore(ClusterConfig(pools=[pool], scaling=ScalingOptions(provider="process")))
    core.handle(beat("p-0", "a"), 1.0)
    core.handle(beat("p-1", "a", loading="b"), 1.0)
    core.handle(beat("p-2", "", loading="b"), 1.0)
    found = samples_of(measure(core))
    assert found["treadle_pool_nodes", "p", "serving"] == 1
    assert found["treadle_node_info", "p-1", "cpu", "b"] == 1
    core.handle(beat("p-1", "b"), 2.0)
    assert samples_of(measure(core))["treadle_pool_nodes", "p", "serving"] == 2


def test_nodes_by_the_phase_that_they_serve_where_some_serve_one_alone() -> None:
    core = SchedulerCore(ClusterConfig())
    for name, phases, loading in (("n0", "prefill", ""), ("n1", "both", ""), ("n2", "decode", "a")):
        known = msgspec.structs.replace(beat(name, "a").facts, phases=phases)
        core.handle(msgspec.structs.replace(beat(name, "a", loading=loading), facts=known), 1.0)
    found = samples_of(measure(core))
    assert {key: value for key, value in found.items() if key[0] == "treadle_phase_nodes"} == {
        ("treadle_phase_nodes", "prefill"): 2,
        ("treadle_phase_nodes", "decode"): 1,
    }


def test_nodes_that_follow_the_load_count_whatever_they_serve() -> None:
    core = SchedulerCore(ClusterConfig())
    for phases, served in (("both", (1, 1)), ("decode", (0, 1))):
        known = msgspec.structs.replace(beat("n0", "a").facts, phases=phases, follows_load=True)
        core.handle(msgspec.structs.replace(beat("n0", "a"), facts=known), 1.0)
        found = samples_of(measure(core))
        assert (found["treadle_phase_nodes", "prefill"], found["treadle_phase_nodes", "decode"]) == served
