"""Nodes that follow the load change their phases in the middle of answers, and no token changes.

Which phases a load of some requests wants hangs on how fast a machine is just now; so nodes are told here, as the queue
manager tells them, and it is told nothing: it takes them at their word. What is no split it ends by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shared.bus import streams
from shared.messages.codec import FIELD, encode
from shared.messages.nodes.nodes import Phases, Serve
from tests.e2e.alone import answers_alone
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway
from tests.e2e.wide_model import write_wide_model

NUM_TOKENS = 300  # about a second of work
ASKS = [Ask("small", prompt, NUM_TOKENS) for prompt in PROMPTS]
NODES = ("left", "right")
MAX_ROUNDS = 20


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | int]:
    source = write_wide_model(tmp_path_factory.mktemp("weights") / "wide.gguf", 4)
    return {"name": "small", "source": str(source), "max_model_len": 1024}


@pytest.fixture(scope="module")
def expected(weights: dict[str, str | int]) -> list[str]:
    """What `ASKS` are answered by an engine that does all of it."""
    return answers_alone(weights, ASKS)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, weights: dict[str, str | int]) -> Iterator[Cluster]:
    cluster = Cluster.create(
        Path(tmp_path_factory.mktemp("phases")),
        models=[weights],
        nodes=[{"name": name, "phases": "auto"} for name in NODES],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 128 << 20},
    )
    with cluster.running():
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Both nodes live and have nothing to do, whatever was done to one of them before."""
    shared_cluster.up()
    shared_cluster.wait_idle()
    return shared_cluster


def tell(cluster: Cluster, phases: Mapping[str, Phases]) -> None:
    """As the queue manager does."""
    with cluster.redis() as redis:
        for node, one in phases.items():
            message = Serve(node=node, epoch=cluster.status(node)["epoch"], phases=one)
            redis.xadd(streams.node_inbox(node), {FIELD: encode(message)})


def serving(cluster: Cluster) -> dict[str, str]:
    """By node, what it says that it serves."""
    return {node: cluster.status(node).get("facts", {}).get("phases", "both") for node in NODES}


def num_resumed(cluster: Cluster, node: str) -> float:
    """Requests that the node has gone on with, with their KV."""
    return cluster.metric(node, "treadle_resumed_requests_total", tier="evicted")


def num_serving(cluster: Cluster) -> list[float]:
    """Nodes for each phase."""
    return [cluster.metric("scheduler", "treadle_phase_nodes", phase=phase) for phase in ("prefill", "decode")]


def measured(cluster: Cluster) -> dict[str, str]:
    """By node, what metrics say that it serves."""
    name = "treadle_follower_phases"
    pairs = [(node, one) for node in NODES for one in ("prefill", "decode", "both")]
    return {node: one for node, one in pairs if cluster.metric("queue-manager", name, node=node, phases=one)}


@pytest.mark.parametrize(("prefills", "decodes"), [NODES, NODES[::-1]])
async def test_what_one_node_prefills_the_other_decodes_once_they_are_told(
    cluster: Cluster, expected: list[str], prefills: str, decodes: str
) -> None:
    """In both directions, one after the other."""
    before = num_resumed(cluster, decodes)
    for _ in range(MAX_ROUNDS):  # the queue manager may have told them otherwise meanwhile
        tell(cluster, {prefills: "prefill", decodes: "decode"})
        async with openai_client(cluster) as client:
            answers = await complete(client, ASKS)
        assert [answer.text for answer in answers] == expected
        if num_resumed(cluster, decodes) > before:
            break
    assert num_resumed(cluster, decodes) > before


async def test_nodes_change_in_the_middle_of_answers(cluster: Cluster, expected: list[str]) -> None:
    tell(cluster, {"left": "prefill", "right": "decode"})
    async with openai_client(cluster) as client:
        answers = [Answer() for _ in ASKS]
        tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
        await underway(answers, tasks)
        tell(cluster, {"left": "decode", "right": "prefill"})
        late = await complete(client, ASKS[:2])
        tell(cluster, {"left": "both", "right": "both"})
        await asyncio.gather(*tasks)
    assert [answer.text for answer in answers] == expected
    assert [answer.text for answer in late] == expected[:2]
    assert cluster.missing() == []


@pytest.mark.parametrize("dying", ["left", "right", "queue-manager", "scheduler"])
async def test_somebody_dies_in_the_middle_of_a_change(cluster: Cluster, expected: list[str], dying: str) -> None:
    tell(cluster, {"left": "prefill", "right": "decode"})
    async with openai_client(cluster) as client:
        answers = [Answer() for _ in ASKS]
        tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
        await underway(answers, tasks)
        tell(cluster, {"left": "decode", "right": "prefill"})
        cluster.kill(dying)
        cluster.up()
        late = await complete(client, ASKS[:2])
        await asyncio.gather(*tasks)
    assert [answer.text for answer in answers] == expected
    assert [answer.text for answer in late] == expected[:2]


async def test_where_nobody_prefills_the_queue_manager_ends_that(cluster: Cluster, expected: list[str]) -> None:
    """It looks every second while somebody is here; nodes, scheduler and queue manager say the same in the end."""
    long = [replace(ask, max_tokens=3 * NUM_TOKENS) for ask in ASKS]
    for _ in range(MAX_ROUNDS):  # a look comes within a second of work, on any machine after some
        tell(cluster, {"left": "decode", "right": "decode"})
        async with openai_client(cluster) as client:
            await complete(client, long)
        if set(serving(cluster).values()) != {"decode"}:
            break
    assert set(serving(cluster).values()) != {"decode"}

    def known() -> dict[str, str]:
        nodes = cluster.status("scheduler").get("nodes", {})
        return {name: node["state"].get("phases", "both") for name, node in nodes.items()}

    wait_for("everybody to say the same", lambda: known() == serving(cluster))
    wait_for("nodes for both phases", lambda: min(num_serving(cluster)) >= 1)
    wait_for("the same in metrics", lambda: measured(cluster) == serving(cluster))
    async with openai_client(cluster) as client:
        answers = await complete(client, ASKS)
    assert [answer.text for answer in answers] == expected
