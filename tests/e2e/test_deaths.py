"""Any process dies in the middle of its work, and no client's stream loses or doubles a token."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, kill, runs, wait_for
from tests.e2e.traffic import PROMPTS, Ask, Load, complete, is_broken_stream

LONG = 7000  # tokens, a minute and more; far from done when a silent gateway is given up
GATEWAY_DEATH_S = 60.0  # the queue manager's patience (10 s, once more if it heard nobody), on a busy machine


async def check_answers(client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]) -> None:
    """New requests to both models are answered at the first try."""
    asks = [Ask(model, prompt, 8) for prompt in PROMPTS[:2] for model in cluster.models]
    for ask, answer in zip(asks, await complete(client, asks), strict=True):
        assert undisturbed[ask.prompt].startswith(answer.text)
        assert answer.num_tokens == ask.max_tokens


@pytest.mark.parametrize("name", ["queue-manager", "scheduler", "kv-manager", "redis"])
async def test_a_service_dies_and_comes_back(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str], name: str
) -> None:
    before = cluster.pids()

    async def die() -> None:
        cluster.kill(name)
        said = await asyncio.to_thread(cluster.up)
        assert f"started: {name}\n" in said

    load = Load.on(cluster.models)
    failures = await load.disturbed(client, cluster, die)
    load.check(failures, undisturbed)
    await check_answers(client, cluster, undisturbed)
    after = cluster.pids()
    assert {process for process in before if before[process] != after[process]} == {name}


async def test_the_engine_dies_and_the_agent_begins_anew(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    node = cluster.nodes[0]
    before = cluster.status(node)

    async def die() -> None:
        os.kill(before["engine_pid"], signal.SIGKILL)

    load = Load.on(cluster.models)
    failures = await load.disturbed(client, cluster, die)
    load.check(failures, undisturbed)
    await asyncio.to_thread(wait_for, "a new engine", lambda: cluster.get(node, "/readyz")[0] == 200)
    after = cluster.status(node)
    assert after["engine_pid"] != before["engine_pid"]
    assert after["epoch"] != before["epoch"]
    assert cluster.missing() == []


async def test_a_node_dies_and_the_other_one_serves_both_models(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    dying = cluster.nodes[0]
    engine = cluster.status(dying)["engine_pid"]

    async def die() -> None:
        cluster.kill(dying)
        await asyncio.to_thread(wait_for, "the end of the orphaned engine", lambda: not runs(engine))

    load = Load.on(cluster.models)
    failures = await load.disturbed(client, cluster, die)
    load.check(failures, undisturbed)
    await check_answers(client, cluster, undisturbed)
    assert cluster.missing() == [dying]


async def test_a_frozen_node_is_declared_dead_and_fenced_when_it_wakes(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    frozen = cluster.nodes[0]
    before = cluster.status(frozen)["epoch"]
    load = Load.on(cluster.models)

    def is_dead() -> bool:
        return frozen not in cluster.status("scheduler").get("nodes", {frozen: None})

    async def freeze() -> None:
        with cluster.frozen(frozen):
            await asyncio.to_thread(wait_for, "the frozen node's death", is_dead)
        # it wakes while others go on with its streams, says what it had to say, and must not be believed

    failures = await load.disturbed(client, cluster, freeze)
    load.check(failures, undisturbed)
    await asyncio.to_thread(wait_for, "a new epoch", lambda: cluster.status(frozen).get("epoch", before) != before)
    await asyncio.to_thread(wait_for, "the node's return", lambda: cluster.get(frozen, "/readyz")[0] == 200)
    assert cluster.missing() == []


async def test_the_gateway_dies_and_what_its_clients_asked_for_is_forgotten(
    client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]
) -> None:
    before = cluster.output_tokens()
    load = Load.on(cluster.models, max_tokens=LONG)

    async def die() -> None:
        cluster.kill("gateway")

    failures = await load.disturbed(client, cluster, die)
    assert all(is_broken_stream(failure) for failure in failures), failures
    assert all(answer.finish_reason is None for answer in load.answers)
    await asyncio.to_thread(cluster.up)
    await check_answers(client, cluster, undisturbed)
    await asyncio.to_thread(cluster.wait_idle, GATEWAY_DEATH_S)
    assert cluster.output_tokens() - before < 6 * LONG, "the nodes went on to the end for nobody"


async def test_all_services_die_at_once(client: AsyncOpenAI, cluster: Cluster, undisturbed: dict[str, str]) -> None:
    names = ["queue-manager", "scheduler", "kv-manager", "redis"]

    async def die() -> None:
        for pid in [cluster.pids()[name] for name in names]:
            kill(pid)
        await asyncio.to_thread(cluster.up)

    load = Load.on(cluster.models)
    failures = await load.disturbed(client, cluster, die)
    load.check(failures, undisturbed)
    await check_answers(client, cluster, undisturbed)
