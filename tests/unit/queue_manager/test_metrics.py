"""What is to be seen of the queue, as of the last message."""

from __future__ import annotations

import pytest

from services.queue_manager.metrics import QueueMetrics
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodeSpec
from shared.messages.nodes.placement import Plan
from shared.messages.requests.slo import Slo
from tests.samples import Samples, samples_of
from tests.unit.queue_manager.world import World

SOON = Slo(name="soon", ttft_s=10.0)
LATER = Slo(name="later", deadline_s=1000.0)


@pytest.fixture
def world() -> World:
    return World(ClusterConfig())


def seen(world: World) -> Samples:
    return samples_of(QueueMetrics()(world.core))


def test_an_idle_queue_says_zero() -> None:
    assert samples_of(QueueMetrics()(World(ClusterConfig()).core)) == {
        ("treadle_queue_accepted_requests",): 0,
        ("treadle_queue_nodes",): 0,
        ("treadle_queue_gateways",): 0,
        ("treadle_queue_unplaced_groups",): 0,
        ("treadle_queue_hand_overs",): 0,
        ("treadle_plan_pending_seconds",): 0,
        ("treadle_plan_late_groups",): 0,
    }


def test_requests_are_told_apart_by_model_promise_and_tenant_and_queues_by_node(world: World) -> None:
    world.start("n0", "a")
    for name, model, slo in (("r0", "a", SOON), ("r1", "a", SOON), ("r2", "a", LATER), ("r3", "b", SOON)):
        world.submit(name, model, slo)
    world.settle()
    world.pull(world.nodes["n0"], world.core.state.requests["r0"].group, 1)
    world.settle()
    found = seen(world)
    waiting = {key[1:]: value for key, value in found.items() if key[0] == "treadle_queue_waiting_requests"}
    running = {key[1:]: value for key, value in found.items() if key[0] == "treadle_queue_running_requests"}
    assert waiting == {("a", "soon", "default"): 1, ("a", "later", "default"): 1, ("b", "soon", "default"): 1}
    assert running == {("a", "soon", "default"): 1, ("a", "later", "default"): 0, ("b", "soon", "default"): 0}
    assert found["treadle_queue_accepted_requests",] == 4
    assert found["treadle_virtual_queue_groups", "n0"] == len(world.core.state.nodes["n0"].queue)
    assert found["treadle_virtual_queue_waiting_requests", "n0"] == 2
    assert found["treadle_virtual_queue_drain_seconds", "n0"] == world.core.state.nodes["n0"].drain_s > 0
    assert found["treadle_queue_unplaced_groups",] == 1, "nobody holds its model"
    assert (found["treadle_queue_nodes",], found["treadle_queue_gateways",]) == (1, 1)


def test_the_most_urgent_request_says_how_late_its_kind_is(world: World) -> None:
    world.submit("r0", "a", SOON)
    world.submit("r1", "a", LATER)
    world.settle()
    world.wait(12.0)
    found = seen(world)
    assert found["treadle_queue_overdue_seconds", "a", "soon", "default"] == pytest.approx(2.0, abs=0.002)
    assert found["treadle_queue_overdue_seconds", "a", "later", "default"] == 0


def test_a_plan_that_is_awaited_has_an_age_until_it_comes(world: World) -> None:
    world.start("n0", "b")
    world.submit("r0", "a", SOON)
    world.settle()
    asked_at_s = world.core.state.plan.asked_at_s
    assert asked_at_s is not None
    world.wait(3.0)
    assert seen(world)["treadle_plan_pending_seconds",] == world.now - asked_at_s == 3.0
    world.do(Plan(version=world.core.state.plan.asked_version, queues={}))
    assert seen(world)["treadle_plan_pending_seconds",] == 0


def test_who_has_been_in_the_queue_is_shown_when_it_is_empty(world: World) -> None:
    metrics = QueueMetrics()
    world.submit("r0", "a", SOON)
    world.settle()
    assert samples_of(metrics(world.core))["treadle_queue_waiting_requests", "a", "soon", "default"] == 1
    world.cancel("r0")
    world.settle()
    empty = samples_of(metrics(world.core))
    assert empty["treadle_queue_accepted_requests",] == 0
    for name in ("waiting_requests", "running_requests", "overdue_seconds"):
        assert empty[f"treadle_queue_{name}", "a", "soon", "default"] == 0


def test_nodes_that_follow_the_load_by_what_they_serve_and_how_often_they_were_told_otherwise() -> None:
    world = World(ClusterConfig(nodes=[NodeSpec(name=name, phases="auto") for name in ("n0", "n1")]))
    for name in ("n0", "n1"):
        world.start(name, "a", "x", phases="decode", follows_load=True)
    world.submit("r0", "a", SOON)
    world.settle()
    phases = {name: node.phases for name, node in world.nodes.items()}
    found = {key: value for key, value in seen(world).items() if "phase" in key[0]}
    assert sum(value for key, value in found.items() if key[0] == "treadle_phase_changes_total") >= 1
    served = {key[1]: key[2] for key, value in found.items() if key[0] == "treadle_follower_phases" and value}
    assert served == phases
