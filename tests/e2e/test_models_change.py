"""Models come and go while the cluster runs: no process is restarted, no stream notices."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import yaml
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import openai_client
from tests.e2e.wide_model import write_wide_model

PROMPT = list(b"abcdefgh")
LONG_TOKENS = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("models")
    source = str(write_wide_model(folder / "wide.gguf"))
    models = [{"name": "first", "source": source, "max_model_len": 2048}]
    nodes = [{"name": "node-0", "executor": "cpu", "num_threads": 1}]
    engine = {"kv_cache_bytes": 256 << 20}
    with Cluster.create(folder, models=models, nodes=nodes, engine=engine).running() as running:
        yield running


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(cluster) as found:
        yield found


def change(cluster: Cluster, *models: dict[str, Any], **others: Any) -> tuple[int, str]:
    """Write the configuration anew and apply it: the command's status, and what it said."""
    cluster.config_file.write_text(yaml.safe_dump(cluster.config | {"models": list(models)} | others))
    done = cluster.treadle("apply")
    return done.returncode, done.stdout + done.stderr


async def answer(client: AsyncOpenAI, model: str, num_tokens: int = 8) -> str:
    found = await client.completions.create(
        model=model, prompt=PROMPT, max_tokens=num_tokens, temperature=0.0, extra_body={"ignore_eos": True}
    )
    assert found.usage is not None
    assert found.usage.completion_tokens == num_tokens
    return found.choices[0].text


async def test_models_come_and_go_under_a_stream(cluster: Cluster, client: AsyncOpenAI) -> None:
    (first,) = cluster.config["models"]
    pids, epoch = cluster.pids(), cluster.status("node-0")["epoch"]
    expected = await answer(client, "first", LONG_TOKENS)
    stream = await client.completions.create(
        model="first",
        prompt=PROMPT,
        max_tokens=LONG_TOKENS,
        temperature=0.0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    parts = aiter(stream)
    text = (await anext(parts)).choices[0].text
    second = first | {"name": "second", "aliases": ["default"]}
    assert await asyncio.to_thread(change, cluster, second) == (0, "served: second, default\n")
    with pytest.raises(openai.NotFoundError, match="there are: second, default"):
        await answer(client, "first")
    async for part in parts:
        text += part.choices[0].text
    assert text == expected, "its model has gone, and it is whole"
    assert await answer(client, "default") == expected[:8], "the same weights under another name"
    assert await asyncio.to_thread(change, cluster, first, second) == (0, "served: first, second, default\n")
    assert await answer(client, "first") == expected[:8]
    assert cluster.pids() == pids
    assert cluster.status("node-0")["epoch"] == epoch


async def test_what_cannot_change_is_refused_and_nothing_else_either(cluster: Cluster, client: AsyncOpenAI) -> None:
    (first,) = cluster.config["models"]
    status, said = await asyncio.to_thread(change, cluster, first, engine={"kv_cache_bytes": 512 << 20})
    assert status != 0
    assert "nothing was applied: engine differ" in said
    status, said = await asyncio.to_thread(change, cluster, first | {"weights": "int8"})
    assert status != 0
    assert "model 'first': its weights changed; restart nodes and gateways, or give it another name" in said
    status, said = await asyncio.to_thread(change, cluster, first | {"name": "third", "source": "/nowhere.gguf"})
    assert status != 0
    assert "/nowhere.gguf" in said
    assert await asyncio.to_thread(change, cluster, first) == (0, "served: first\n")
    assert len(await answer(client, "first")) > 0


async def test_a_name_that_comes_back_with_other_weights_is_served_by_nobody(
    cluster: Cluster, client: AsyncOpenAI
) -> None:
    """Neither by the gateway, which knew it, nor by a node whose engine has died since."""
    (first,) = cluster.config["models"]
    second = first | {"name": "second"}
    assert await asyncio.to_thread(change, cluster, second) == (0, "served: second\n")
    before = cluster.status("node-0")
    os.kill(before["engine_pid"], signal.SIGKILL)
    wait_for("another epoch", lambda: cluster.status("node-0").get("epoch", before["epoch"]) != before["epoch"])
    status, said = await asyncio.to_thread(change, cluster, first | {"weights": "int8"}, second)
    assert status != 0
    assert "model 'first': its weights changed; restart nodes and gateways, or give it another name" in said
    with pytest.raises(openai.InternalServerError, match="its weights changed"):
        await client.with_options(max_retries=0).completions.create(model="first", prompt=PROMPT, max_tokens=1)
    wait_for("the node to know it too", lambda: "first" in cluster.status("node-0").get("broken_models", {}))
    assert len(await answer(client, "second")) > 0, "the other models are served"
    assert await asyncio.to_thread(change, cluster, first, second) == (0, "served: first, second\n")
    assert len(await answer(client, "first")) > 0
