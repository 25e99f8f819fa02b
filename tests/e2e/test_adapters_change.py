"""Adapters come to a model that is served, and go: no process is restarted, and no stream of the model notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.test_adapters import save_adapter
from tests.e2e.test_models_change import LONG_TOKENS, PROMPT, answer, change
from tests.e2e.traffic import openai_client
from tests.e2e.wide_model import write_wide_model

NUM_TOKENS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def model(folder: Path) -> dict[str, Any]:
    source = str(write_wide_model(folder / "wide.gguf"))
    return {"name": "first", "source": source, "max_model_len": 2048}


@pytest.fixture(scope="module")
def adapters(folder: Path, model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By name."""
    names = ("legal", "rhymes", "other")
    sources = [save_adapter(folder / name, Path(model["source"]), seed) for seed, name in enumerate(names)]
    return {name: {"name": name, "source": source} for name, source in zip(names, sources, strict=True)}


def cluster_of(folder: Path, model: dict[str, Any]) -> Cluster:
    nodes = [{"name": "node-0", "executor": "cpu", "num_threads": 1}]
    return Cluster.create(folder, models=[model], nodes=nodes, engine={"kv_cache_bytes": 256 << 20})


@pytest.fixture(scope="module")
def expected(folder: Path, model: dict[str, Any], adapters: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What a cluster answers that was started with all of them."""

    async def ask(cluster: Cluster) -> dict[str, str]:
        async with openai_client(cluster) as client:
            return {name: await answer(client, name, NUM_TOKENS) for name in ("first", *adapters)}

    (folder / "whole").mkdir()
    with cluster_of(folder / "whole", model | {"adapters": list(adapters.values())}).running() as cluster:
        found = asyncio.run(ask(cluster))
    assert len(set(found.values())) == len(found), "adapters change answers"
    return found


@pytest.fixture(scope="module")
def cluster(folder: Path, model: dict[str, Any], expected: dict[str, str]) -> Iterator[Cluster]:
    assert expected, "its processes have ended"
    (folder / "changing").mkdir()
    with cluster_of(folder / "changing", model).running() as running:
        yield running


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(cluster) as found:
        yield found


@asynccontextmanager
async def streaming(client: AsyncOpenAI, model: str, num_tokens: int = LONG_TOKENS) -> AsyncIterator[asyncio.Task[str]]:
    """Inside, a long answer of ``model`` has begun; the task has its whole text."""
    stream = await client.completions.create(
        model=model,
        prompt=PROMPT,
        max_tokens=num_tokens,
        temperature=0.0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    parts = aiter(stream)
    first = (await anext(parts)).choices[0].text

    async def rest() -> str:
        return first + "".join([part.choices[0].text async for part in parts])

    yield asyncio.create_task(rest())


async def test_an_adapter_comes_and_goes_under_a_stream_of_its_model(
    cluster: Cluster,
    client: AsyncOpenAI,
    model: dict[str, Any],
    adapters: dict[str, dict[str, Any]],
    expected: dict[str, str],
) -> None:
    pids, epoch = cluster.pids(), cluster.status("node-0")["epoch"]
    whole = await answer(client, "first", LONG_TOKENS)
    assert whole[:NUM_TOKENS] == expected["first"]
    async with streaming(client, "first") as text:
        with_legal = model | {"adapters": [adapters["legal"]]}
        assert await asyncio.to_thread(change, cluster, with_legal) == (0, "served: first, legal\n")
        assert await answer(client, "legal", NUM_TOKENS) == expected["legal"]
        assert await text == whole
    listed = {one.id: one.model_extra or {} for one in (await client.models.list()).data}
    assert [listed[name]["parent"] for name in ("first", "legal")] == [None, "first"]
    whole_legal = await answer(client, "legal", LONG_TOKENS)
    async with streaming(client, "legal") as text:
        with_rhymes = model | {"adapters": [adapters["rhymes"]]}
        assert await asyncio.to_thread(change, cluster, with_rhymes) == (0, "served: first, rhymes\n")
        with pytest.raises(openai.NotFoundError, match="there are: first, rhymes"):
            await answer(client, "legal")
        assert await answer(client, "rhymes", NUM_TOKENS) == expected["rhymes"], "in the place that the other had"
        assert await text == whole_legal, "its adapter has gone, and it is whole"
    with_both = model | {"adapters": [adapters["rhymes"], adapters["legal"]]}
    assert await asyncio.to_thread(change, cluster, with_both) == (0, "served: first, rhymes, legal\n")
    for name in ("legal", "rhymes", "first"):
        assert await answer(client, name, NUM_TOKENS) == expected[name]
    assert cluster.pids() == pids
    assert cluster.status("node-0")["epoch"] == epoch


async def test_a_name_that_comes_back_as_another_adapter_is_refused(
    cluster: Cluster,
    client: AsyncOpenAI,
    model: dict[str, Any],
    adapters: dict[str, dict[str, Any]],
    expected: dict[str, str],
) -> None:
    assert (await asyncio.to_thread(change, cluster, model | {"adapters": [adapters["legal"]]}))[0] == 0
    assert await answer(client, "legal", NUM_TOKENS) == expected["legal"]
    changed = adapters["legal"] | {"source": adapters["other"]["source"]}
    status, said = await asyncio.to_thread(change, cluster, model | {"adapters": [changed]})
    assert status != 0
    problem = "adapter 'legal' of model 'first': its source changed"
    assert problem in said
    assert await asyncio.to_thread(change, cluster, model) == (0, "served: first\n")
    status, said = await asyncio.to_thread(change, cluster, model | {"adapters": [changed]})
    assert status != 0, "the file that runs does not know it any more; the gateway does"
    assert problem in said
    assert cluster.metric("gateway", "treadle_models_stale") == 1
    wait_for("the node to see it", lambda: "first" in cluster.status("node-0")["broken_adapters"])
    assert problem in cluster.status("node-0")["broken_adapters"]["first"]["legal"]
    with pytest.raises(openai.InternalServerError, match="its source changed") as refused:
        await answer(client, "legal")
    assert refused.value.status_code == 503
    assert await answer(client, "first", NUM_TOKENS) == expected["first"]
    for told in (model, model | {"adapters": [adapters["legal"]]}):
        assert (await asyncio.to_thread(change, cluster, told))[0] == 0
    assert await answer(client, "legal", NUM_TOKENS) == expected["legal"]
