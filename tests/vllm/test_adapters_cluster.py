"""Adapters come to a cluster whose node has vLLM, and go, by `treadle apply`: no stream notices."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI
from safetensors.numpy import save_file

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.test_adapters import RANK, save_adapter
from tests.e2e.test_adapters_change import streaming
from tests.e2e.test_models_change import answer, change
from tests.e2e.traffic import openai_client

NODE = "node-0"
UP_S = 400
NUM_TOKENS, LONG_TOKENS = 12, 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def model(smol: Path) -> dict[str, Any]:
    return {
        "name": "first",
        "source": str(smol),
        "max_model_len": 512,
        "adapter_room": {"num": 2, "rank": RANK},
    }


@pytest.fixture(scope="module")
def adapters(folder: Path, model_file: Path) -> dict[str, dict[str, Any]]:
    """By name; ``narrow`` is for another model."""
    names = ("legal", "rhymes", "other")
    found = {name: save_adapter(folder / name, model_file, seed) for seed, name in enumerate(names)}
    narrow = folder / "narrow"
    shutil.copytree(folder / "legal", narrow)
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    shapes = {f"{module}.lora_A.weight": (RANK, 100), f"{module}.lora_B.weight": (100, RANK)}
    save_file(
        {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, narrow / "adapter_model.safetensors"
    )
    return {name: {"name": name, "source": source} for name, source in (found | {"narrow": str(narrow)}).items()}


@pytest.fixture(scope="module")
def cluster(folder: Path, model: dict[str, Any], vllm_python: Path, redis_program: Path) -> Iterator[Cluster]:
    del redis_program
    vllm = {"python": str(vllm_python), "args": ["--dtype", "float32"]}
    one = Cluster.create(
        folder,
        models=[model],
        nodes=[{"name": NODE, "engine": "vllm", "num_threads": 1, "vllm": vllm}],
        engine={"max_num_seqs": 4, "kv_cache_bytes": 256 << 20, "step_timeout_s": 200},
    )
    try:
        done = one.treadle("up", "--wait-s", str(UP_S))
        assert done.returncode == 0, done.stderr + one.log_tails()
        yield one
    finally:
        one.down()
    assert one.members() == []


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncOpenAI]:
    async with openai_client(cluster) as found:
        yield found


async def having(cluster: Cluster, model: dict[str, Any], *adapters: dict[str, Any]) -> tuple[int, str]:
    return await asyncio.to_thread(change, cluster, model | {"adapters": list(adapters)})


async def test_adapters_come_and_go_and_outlive_the_engine(
    cluster: Cluster, client: AsyncOpenAI, model: dict[str, Any], adapters: dict[str, dict[str, Any]]
) -> None:
    """What came while the model served says what it says once it is loaded with it."""
    pids, epoch = cluster.pids(), cluster.status(NODE)["epoch"]
    whole = await answer(client, "first", LONG_TOKENS)
    async with streaming(client, "first", LONG_TOKENS) as text:
        assert await having(cluster, model, adapters["legal"]) == (0, "served: first, legal\n")
        legal = await answer(client, "legal", NUM_TOKENS)
        assert await text == whole
    assert legal != whole[: len(legal)]
    whole_legal = await answer(client, "legal", LONG_TOKENS)
    async with streaming(client, "legal", LONG_TOKENS) as text:
        assert await having(cluster, model, adapters["rhymes"]) == (0, "served: first, rhymes\n")
        with pytest.raises(openai.NotFoundError, match="there are: first, rhymes"):
            await answer(client, "legal")
        rhymes = await answer(client, "rhymes", NUM_TOKENS)
        assert await text == whole_legal, "its adapter has gone, and it is whole"
    assert (await having(cluster, model, adapters["rhymes"], adapters["legal"]))[0] == 0
    assert await answer(client, "legal", NUM_TOKENS) == legal
    assert cluster.pids() == pids
    status = cluster.status(NODE)
    assert status["epoch"] == epoch
    assert set(status["adapters"]) == {"legal", "rhymes"}

    os.kill(status["engine_pid"], signal.SIGKILL)
    wait_for("another epoch", lambda: cluster.status(NODE).get("epoch", epoch) != epoch)
    answers = await asyncio.gather(*(answer(client, name, NUM_TOKENS) for name in ("legal", "rhymes", "first")))
    assert answers == [legal, rhymes, whole[: len(answers[2])]]


async def test_one_that_cannot_be_used_and_one_that_is_another_are_refused_in_words(
    cluster: Cluster, client: AsyncOpenAI, model: dict[str, Any], adapters: dict[str, dict[str, Any]]
) -> None:
    assert (await having(cluster, model, adapters["narrow"]))[0] == 0
    with pytest.raises(openai.BadRequestError, match="no adapter 'narrow' at this node that can be used"):
        await answer(client, "narrow")
    assert ", of a weight of shape (576, 576)" in cluster.status(NODE)["broken_adapters"]["first"]["narrow"]
    assert (await having(cluster, model, adapters["legal"]))[0] == 0
    legal = await answer(client, "legal", NUM_TOKENS)
    assert (await having(cluster, model))[0] == 0
    changed = adapters["legal"] | {"source": adapters["other"]["source"]}
    status, said = await having(cluster, model, changed)
    assert status != 0
    assert "adapter 'legal' of model 'first': its source changed" in said
    with pytest.raises(openai.InternalServerError, match="its source changed"):
        await answer(client.with_options(max_retries=0), "legal")
    for told in ([], [adapters["legal"]]):
        assert (await having(cluster, model, *told))[0] == 0
    assert await answer(client, "legal", NUM_TOKENS) == legal
