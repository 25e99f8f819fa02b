"""Requests give way, move between nodes and come back, in a whole cluster in virtual time: no token is lost or doubled.

The plans are the tests' own, so that any order of groups is tried, however foolish.
"""

from __future__ import annotations

from functools import cache
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.simulator.cluster.cluster import SimulatedCluster
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.messages.message import Message
from shared.messages.nodes.placement import PlacementProblem, Plan, PlanSolver
from shared.messages.requests.payload import Output
from shared.messages.requests.requests import HANDED_OVER, Evicted, EvictedRequest
from tests.unit.simulated import FAULTS, MODELS, READY_S, assert_nothing_left, play, run, run_to_the_end, submit


def make_cluster(solve: PlanSolver, num_nodes: int = 2, evicted_kv_bytes: int = 1 << 20) -> SimulatedCluster:
    """Two requests fill a node."""
    config = ClusterConfig(
        models=[ModelSpec(name=name, source="none", max_model_len=64) for name in MODELS],
        nodes=[NodeSpec(name=f"node-{number}") for number in range(num_nodes)],
        engine=EngineOptions(
            block_size=4,
            kv_cache_bytes=3 << 20,
            max_num_seqs=2,
            step_tokens=16,
            evicted_kv_bytes=evicted_kv_bytes,
        ),
    )
    cluster = SimulatedCluster(config, solve=solve)
    cluster.bus.run_until(READY_S)
    return cluster


def by_deadline(problem: PlacementProblem) -> Plan:
    """All groups at the first node, due first served first, whoever runs."""
    groups = sorted(problem.groups, key=lambda group: group.deadline_s)
    return Plan(version=problem.version, queues={problem.nodes[0].node: [group.group for group in groups]})


def at_random(seed: int) -> PlanSolver:
    random = Random(seed)

    def solve(problem: PlacementProblem) -> Plan:
        queues: dict[str, list[str]] = {node.node: [] for node in problem.nodes}
        for group in random.sample(problem.groups, len(problem.groups)) if queues else ():  # all nodes may have left
            queues[random.choice(list(queues))].append(group.group)
        return Plan(version=problem.version, queues=queues)

    return solve


def evictions(cluster: SimulatedCluster) -> list[EvictedRequest]:
    """All evictions from now on, as they are told."""
    told: list[EvictedRequest] = []

    def listen(_: float, __: str, message: Message) -> None:
        if isinstance(message, Evicted):
            told.extend(message.requests)

    cluster.bus.listen(listen)
    return told


def urgent_beside(
    num_batch: int, model: str = "a", evicted_kv_bytes: int = 1 << 20
) -> tuple[SimulatedCluster, list[EvictedRequest]]:
    """An urgent request comes to a node that runs batch requests of model a; who was evicted until all are over."""
    cluster = make_cluster(by_deadline, num_nodes=1, evicted_kv_bytes=evicted_kv_bytes)
    told = evictions(cluster)
    for number in range(num_batch):
        submit(cluster, f"batch-{number}", num_tokens=50, slo="batch-2")
    run(cluster, 0.3)
    submit(cluster, "urgent", model, num_tokens=5)
    run_to_the_end(cluster)
    return cluster, told


def undisturbed(name: str, model: str, num_tokens: int) -> list[int]:
    cluster = make_cluster(by_deadline)
    submit(cluster, name, model, num_tokens)
    run_to_the_end(cluster)
    return cluster.gateway.answers[name].token_ids


def test_a_batch_request_gives_way_to_an_urgent_one_once_and_goes_on() -> None:
    cluster, told = urgent_beside(num_batch=2)
    assert [(request.request_id, request.attempt, request.kv_at) for request in told] == [("batch-1", 0, "node-0")]
    assert told[0].kv_tokens > 7
    assert_nothing_left(cluster)
    answers = cluster.gateway.answers
    finished = sorted(answers, key=lambda name: answers[name].finished_s or 0)
    assert finished == ["urgent", "batch-0", "batch-1"]
    for name, num_tokens in (("urgent", 5), ("batch-0", 50), ("batch-1", 50)):
        assert answers[name].token_ids == undisturbed(name, "a", num_tokens)


def test_who_gave_way_waits_for_room_and_does_not_push_out_the_rest_of_the_group() -> None:
    cluster, told = urgent_beside(num_batch=4)
    assert [request.request_id for request in told] == ["batch-1"]
    assert_nothing_left(cluster)
    answers = cluster.gateway.answers
    finished = sorted(answers, key=lambda name: answers[name].finished_s or 0)
    assert finished == ["urgent", "batch-0", "batch-1", "batch-2", "batch-3"]


def test_all_give_way_to_another_model_and_go_on_when_theirs_is_back() -> None:
    cluster, told = urgent_beside(num_batch=2, model="b")
    assert sorted(request.request_id for request in told) == ["batch-0", "batch-1"]
    assert cluster.nodes["node-0"].num_swaps == 3
    assert_nothing_left(cluster)
    answers = cluster.gateway.answers
    assert min(answers, key=lambda name: answers[name].finished_s or 0) == "urgent"
    for name, model, num_tokens in (("urgent", "b", 5), ("batch-0", "a", 50), ("batch-1", "a", 50)):
        assert answers[name].token_ids == undisturbed(name, model, num_tokens)


def test_without_room_for_its_kv_a_request_is_computed_again() -> None:
    cluster, told = urgent_beside(num_batch=2, evicted_kv_bytes=0)
    assert [(request.request_id, request.kv_tokens) for request in told] == [("batch-1", 0)]
    assert_nothing_left(cluster)
    answer = cluster.gateway.answers["batch-1"]
    assert answer.generation.attempt == 1
    assert answer.token_ids == undisturbed("batch-1", "a", 50)


def test_a_node_that_leaves_hands_its_requests_over_with_their_kv() -> None:
    cluster = make_cluster(by_deadline)
    told = evictions(cluster)
    submit(cluster, "r", num_tokens=50)
    run(cluster, 0.3)
    (name,) = (name for name, node in cluster.nodes.items() if node.core.running)
    cluster.nodes[name].leave()
    run_to_the_end(cluster)
    assert [(request.request_id, request.kv_at) for request in told] == [("r", HANDED_OVER)]
    answer = cluster.gateway.answers["r"]
    assert answer.generation.attempt == 0, "it was never lost"
    assert answer.token_ids == undisturbed("r", "a", 50)
    assert cluster.bus.images == {}


MAX_REQUESTS = 25
MAX_TOKENS = 40


@cache
def longest_answers() -> dict[str, list[Output]]:
    """What the clients of the test below get at most when nobody is in the way; shorter answers begin alike."""
    cluster = make_cluster(by_deadline)
    for number in range(MAX_REQUESTS):
        submit(cluster, f"r{number}", num_tokens=MAX_TOKENS, num_choices=2)
    run_to_the_end(cluster)
    return {name: answer.outputs for name, answer in cluster.gateway.answers.items()}


REQUESTS = st.tuples(
    st.just("submit"),
    st.sampled_from(MODELS),
    st.integers(1, MAX_TOKENS),
    st.sampled_from(["interactive", "batch-2"]),
    st.integers(1, 2),
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 200_000, 1 << 20]),
    st.lists(
        st.tuples(st.floats(0.01, 0.3), st.one_of(REQUESTS, REQUESTS, REQUESTS, FAULTS)),
        min_size=1,
        max_size=MAX_REQUESTS,
    ),
)
def test_whatever_is_planned_every_request_gets_every_token_once(
    seed: int, evicted_kv_bytes: int, events: list[tuple[float, tuple[object, ...]]]
) -> None:
    cluster = make_cluster(at_random(seed), evicted_kv_bytes=evicted_kv_bytes)
    asked = play(cluster, events)
    run_to_the_end(cluster)
    assert_nothing_left(cluster)
    answers = cluster.gateway.answers
    assert {name: [output.token_ids for output in answers[name].outputs] for name in answers} == {
        name: [output.token_ids[:num_tokens] for output in longest_answers()[name][:num_choices]]
        for name, (num_tokens, num_choices) in asked.items()
    }
