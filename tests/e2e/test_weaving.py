"""Two nodes of this machine weave: a node's requests lie on the other one too, and no token changes, whoever dies.

The model is a small one, whose heads share keys and values as those of large ones do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from tests.e2e.alone import answers_alone
from tests.e2e.cluster import WAIT_S, Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway
from tests.e2e.wide_model import write_wide_model

pytestmark = pytest.mark.slow

NUM_TOKENS = 200  # some seconds of work
ASKS = [Ask("first", prompt, NUM_TOKENS) for prompt in PROMPTS]
NODES = ["node-0", "node-1"]


NUM_IN_CROWD = 6
"""Of each request: half as many again as fit at a time."""
NUM_KV_HEADS = 4
SMALL_KV_BYTES = 60 << 20
"""For some sixteen of these requests; with less, blocks leave much of each page unused."""


def configured(folder: Path, form: str, kv_bytes: int = 512 << 20, **config: object) -> Cluster:
    """Two models, so that each node has one."""
    folder.mkdir()
    source = str(write_wide_model(folder / "wide.gguf", NUM_KV_HEADS))
    return Cluster.create(
        folder,
        models=[{"name": name, "source": source, "max_model_len": 512} for name in ("first", "second")],
        nodes=[{"name": name, "executor": "cpu", "num_threads": 1} for name in NODES],
        engine={"max_num_seqs": 24, "kv_cache_bytes": kv_bytes, "offload": form},
        queue={"operations": {"swap": False}},  # all requests of a model run on its node
        **config,
    )


async def warm(client: AsyncOpenAI, cluster: Cluster) -> str:
    """Each node has a model; the node of the first one."""
    await complete(client, [Ask(model, PROMPTS[0], 1) for model in cluster.models])
    return await asyncio.to_thread(wait_for, "a node with the first model", lambda: node_of(cluster, "first"))


def node_of(cluster: Cluster, model: str) -> str:
    return next((name for name in NODES if cluster.status(name).get("model") == model), "")


@asynccontextmanager
async def under_way(client: AsyncOpenAI) -> AsyncIterator[list[Answer]]:
    """Answers that have begun inside of the block, and are complete behind it."""
    answers = [Answer() for _ in ASKS]
    tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
    try:
        await underway(answers, tasks)
        yield answers
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def borrowed(cluster: Cluster, node: str) -> int:
    """Pages that a node has on the other one."""
    lease = cluster.status("kv-manager").get("leases", {}).get(node)
    return int(lease["num_pages"]) if lease else 0


def has_served(cluster: Cluster, node: str) -> bool:
    """It has done attention of the other one: of many a layer."""
    return cluster.metric(node, "treadle_offload_served_tasks_total") > NUM_TOKENS


async def test_requests_lie_on_the_other_node_and_survive_its_death(tmp_path: Path) -> None:
    woven = configured(tmp_path / "woven", "on", offload={"hosts": [NODES], "ratio": 0.5})
    expected = await asyncio.to_thread(answers_alone, woven.config["models"][0], ASKS)
    with woven.running():
        async with openai_client(woven) as client:
            hot = await warm(client, woven)
            (cold,) = set(NODES) - {hot}
            await asyncio.to_thread(wait_for, "a lease", lambda: borrowed(woven, hot))
            assert [answer.text for answer in await complete(client, ASKS)] == expected
            assert woven.metric(hot, "treadle_offload_lost_requests_total") == 0
            await asyncio.to_thread(wait_for, "work of the receiver", lambda: has_served(woven, cold))

            async with under_way(client) as answers:
                assert {answer.finish_reason for answer in answers} == {None}
                os.kill(woven.status(cold)["engine_pid"], signal.SIGKILL)
            assert [answer.text for answer in answers] == expected
            assert [answer.num_tokens for answer in answers] == [NUM_TOKENS] * len(ASKS)
        assert woven.metric(hot, "treadle_offload_lost_requests_total") > 0, "some of them lay there"
        assert '"num_resubmissions":1' not in woven.logs()["gateway.log"], "their own node went on with them"


async def ask_crowd(client: AsyncOpenAI, expected: list[str]) -> None:
    """Far more requests than fit, each answered as it is alone."""
    crowd = await complete(client, ASKS * NUM_IN_CROWD)
    assert [answer.text for answer in crowd] == expected * NUM_IN_CROWD


async def test_auto_borrows_under_pressure_and_gives_back_when_it_is_over(tmp_path: Path) -> None:
    woven = configured(tmp_path / "woven", "on", SMALL_KV_BYTES, offload={"hosts": [NODES]})
    with woven.running():
        async with openai_client(woven) as client:
            hot = await warm(client, woven)
            (cold,) = set(NODES) - {hot}
            expected = [(await complete(client, [ask]))[0].text for ask in ASKS]
            assert not borrowed(woven, hot), "one request at a time needs nothing"

            under_pressure = asyncio.create_task(
                asyncio.to_thread(wait_for, "pages under pressure", lambda: borrowed(woven, hot))
            )
            while not under_pressure.done():  # however quick the machine is
                await ask_crowd(client, expected)
            await under_pressure
            async with asyncio.timeout(WAIT_S):
                while not has_served(woven, cold):  # the pages came when most of their crowd was over
                    await ask_crowd(client, expected)
            await asyncio.to_thread(wait_for, "pages given back", lambda: not borrowed(woven, hot))
            assert woven.metric(hot, "treadle_offload_lost_requests_total") == 0
