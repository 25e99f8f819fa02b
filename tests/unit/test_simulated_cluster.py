"""The whole cluster in virtual time: the live cores of all services over the in-memory bus.

Invariants are checked after every event: whatever dies, each accepted request gets each of its tokens exactly once.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.simulator.cluster.cluster import SimulatedCluster
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeGone
from tests.unit.simulated import FAULTS, MODELS, READY_S, assert_nothing_left, play, run, run_to_the_end, submit


def make_cluster(num_nodes: int = 2) -> SimulatedCluster:
    """Small blocks, small batches, small groups: everything fills up and spills over."""
    config = ClusterConfig(
        models=[ModelSpec(name=name, source="none", max_model_len=64) for name in MODELS],
        nodes=[NodeSpec(name=f"node-{number}") for number in range(num_nodes)],
        engine=EngineOptions(block_size=4, kv_cache_bytes=3 << 20, max_num_seqs=3, step_tokens=16),
        queue=QueueOptions(delta=2 / 32),
    )
    cluster = SimulatedCluster(config)
    cluster.bus.run_until(READY_S)
    return cluster


def undisturbed(name: str, model: str, num_tokens: int) -> list[int]:
    """What the request's client gets when nothing goes wrong."""
    cluster = make_cluster()
    submit(cluster, name, model, num_tokens)
    run_to_the_end(cluster)
    return cluster.gateway.answers[name].token_ids


def test_each_node_is_given_a_model_of_its_own() -> None:
    cluster = make_cluster()
    assert {name: node.core.model for name, node in cluster.nodes.items()} == {"node-0": "a", "node-1": "b"}


def test_requests_of_both_models_are_answered_without_a_swap() -> None:
    cluster = make_cluster()
    for number in range(6):
        submit(cluster, f"r{number}", MODELS[number % 2])
    run(cluster, 10)
    assert_nothing_left(cluster)
    assert [len(answer.token_ids) for answer in cluster.gateway.answers.values()] == [5] * 6
    assert [node.num_swaps for node in cluster.nodes.values()] == [1, 1]


def test_one_node_serves_two_models_by_swapping() -> None:
    cluster = make_cluster(num_nodes=1)
    for number in range(4):
        submit(cluster, f"r{number}", MODELS[number % 2])
    run_to_the_end(cluster)
    assert_nothing_left(cluster)
    assert cluster.nodes["node-0"].num_swaps == 2


def test_an_urgent_request_overtakes_waiting_work_of_its_model() -> None:
    cluster = make_cluster(num_nodes=1)
    for number in range(10):
        submit(cluster, f"batch-{number}", num_tokens=40, slo="batch-2")
    run(cluster, 0.5)
    submit(cluster, "urgent", num_tokens=2)
    run_to_the_end(cluster)
    finished = sorted(cluster.gateway.answers.items(), key=lambda item: item[1].finished_s or 0)
    order = [name for name, _ in finished]
    assert set(order[: order.index("urgent")]) <= {"batch-0", "batch-1", "batch-2"}, "only what ran already is ahead"
    assert order[-7:] == [f"batch-{number}" for number in range(3, 10)], "the rest is served as it came"


def test_a_dead_nodes_requests_finish_elsewhere_with_the_same_tokens() -> None:
    expected = undisturbed("r", "a", 30)
    cluster = make_cluster()
    submit(cluster, "r", "a", 30)
    run(cluster, 0.2)
    assert 0 < len(cluster.gateway.answers["r"].token_ids) < 30
    cluster.nodes["node-0"].die()
    run_to_the_end(cluster)
    assert cluster.gateway.answers["r"].token_ids == expected
    assert cluster.queue_manager.core.state.requests == {}


def test_all_choices_of_a_dead_nodes_request_finish_elsewhere_with_the_same_tokens() -> None:
    undisturbed = make_cluster()
    submit(undisturbed, "r", num_tokens=30, num_choices=3)
    run_to_the_end(undisturbed)
    cluster = make_cluster()
    submit(cluster, "r", num_tokens=30, num_choices=3)
    run(cluster, 0.2)
    answer = cluster.gateway.answers["r"]
    assert [0 < len(output.token_ids) < 30 for output in answer.outputs] == [True] * 3
    cluster.nodes["node-0"].die()
    run_to_the_end(cluster)
    assert [len(output.token_ids) for output in answer.outputs] == [30] * 3
    assert answer.outputs == undisturbed.gateway.answers["r"].outputs
    assert cluster.queue_manager.core.state.requests == {}


def test_a_node_that_leaves_politely_hands_its_work_back_at_once() -> None:
    cluster = make_cluster()
    submit(cluster, "r", "a", 30)
    run(cluster, 0.2)
    cluster.nodes["node-0"].leave()
    run(cluster, 4)  # less than a heartbeat timeout and a swap
    assert cluster.gateway.unfinished == []


def test_a_node_that_was_thought_dead_is_fenced_and_comes_back_under_a_new_epoch() -> None:
    cluster = make_cluster()
    node = cluster.nodes["node-0"]
    submit(cluster, "r", "a", 40)
    run(cluster, 0.2)
    cluster.bus.unsubscribe(streams.node_inbox("node-0"))  # deaf, and by its silence dead
    cluster.bus.send(streams.SCHEDULER, NodeGone(node="node-0", epoch=node.core.epoch))
    run(cluster, 0.01)
    old_epoch = node.core.epoch
    cluster.bus.subscribe(streams.node_inbox("node-0"), node.receive)
    run_to_the_end(cluster)
    assert node.core.epoch != old_epoch
    assert cluster.gateway.unfinished == []
    assert len(cluster.gateway.answers["r"].token_ids) == 40


def test_a_client_that_leaves_frees_everything() -> None:
    cluster = make_cluster()
    for number in range(8):
        submit(cluster, f"r{number}", num_tokens=40)
    run(cluster, 0.3)
    for number in range(8):
        cluster.gateway.cancel(f"r{number}")
    run(cluster, 1)
    assert_nothing_left(cluster)
    for node in cluster.nodes.values():
        assert node.engine.stats().num_running == 0


def test_a_dead_gateways_requests_are_cancelled() -> None:
    cluster = make_cluster()
    for number in range(8):
        submit(cluster, f"r{number}", num_tokens=50)
    run(cluster, 0.1)
    cluster.gateway.die()
    run(cluster, 25)  # it was the only gateway: it gets the second chance
    assert cluster.queue_manager.core.state.requests == {}
    assert cluster.bus.group_streams() == []
    assert cluster.bus.payloads == {}
    assert all(node.core.running == {} for node in cluster.nodes.values())


@pytest.mark.parametrize("service", ["queue_manager", "scheduler", "kv_manager"])
def test_a_restarted_service_goes_on_from_its_snapshot(service: str) -> None:
    cluster = make_cluster()
    for number in range(9):
        submit(cluster, f"r{number}", MODELS[number % 2], num_tokens=20)
    for _ in range(20):
        run(cluster, 0.05)
        getattr(cluster, service).restart()
    run_to_the_end(cluster)
    assert_nothing_left(cluster)


REQUESTS = st.tuples(
    st.just("submit"),
    st.sampled_from(MODELS),
    st.integers(1, 30),
    st.sampled_from(["interactive", "batch-2"]),
    st.integers(1, 3),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.one_of(REQUESTS, REQUESTS, FAULTS)), min_size=1, max_size=25))
def test_whatever_happens_every_request_gets_every_token_once(events: list[tuple[float, tuple[object, ...]]]) -> None:
    cluster = make_cluster()
    asked = play(cluster, events)
    run_to_the_end(cluster)
    assert_nothing_left(cluster)
    answers = cluster.gateway.answers
    assert {name: [len(one.token_ids) for one in answers[name].outputs] for name in answers} == {
        name: [num_tokens] * num_choices for name, (num_tokens, num_choices) in asked.items()
    }
