"""A cluster with a node of each kind behind one queue: vLLM, and our own engine, with the same weights."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client
from tests.vllm.nodes import left, members, shared_by
from tests.vllm.test_process import process_named

VLLM, OURS = "node-0", "node-1"
UP_S = 400
MAX_TOKENS = 32


@pytest.fixture(scope="module")
def cluster(
    smol: Path, vllm_python: Path, redis_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Up while the tests of this file run; behind them no process is left."""
    del redis_program
    one = Cluster.create(
        tmp_path_factory.mktemp("cluster"),
        models=[{"name": "smol", "source": str(smol), "max_model_len": 1024}],
        nodes=[
            {"name": VLLM, "engine": "vllm", "vllm": {"python": str(vllm_python)}},
            {"name": OURS},
        ],
        engine={"max_num_seqs": 3, "kv_cache_bytes": 128 << 20, "step_timeout_s": 200},
    )
    try:
        done = one.treadle("up", "--wait-s", str(UP_S))
        assert done.returncode == 0, done.stderr + one.log_tails()
        yield one
    finally:
        one.down()
    assert one.members() == []


async def test_both_serve_one_queue(cluster: Cluster) -> None:
    """Twenty requests, of which six run at a time."""
    asks = [Ask("smol", PROMPTS[number % len(PROMPTS)], MAX_TOKENS) for number in range(20)]
    before = {name: cluster.metric(name, "treadle_node_output_tokens_total") for name in cluster.nodes}
    async with openai_client(cluster) as client:
        answers = await complete(client, asks)
    assert {(answer.num_tokens, answer.finish_reason) for answer in answers} == {(MAX_TOKENS, "length")}
    made = {name: cluster.metric(name, "treadle_node_output_tokens_total") - before[name] for name in cluster.nodes}
    assert sum(made.values()) == len(asks) * MAX_TOKENS, "no token is made for nobody"
    assert min(made.values()) > 0, f"both had a part: {made}"
    assert [cluster.status(name)["engine"] for name in (VLLM, OURS)] == ["vllm", "treadle"]
    cluster.wait_idle()


async def test_both_hold_answers_to_their_language(cluster: Cluster) -> None:
    before = {name: cluster.metric(name, "treadle_node_output_tokens_total") for name in cluster.nodes}
    wanted = "[0-9]{3}-[a-f]{8} (one|two)"
    async with openai_client(cluster) as client:
        answers = await asyncio.gather(
            *(
                client.completions.create(
                    model="smol", prompt=prompt, max_tokens=64, extra_body={"structured_outputs": {"regex": wanted}}
                )
                for prompt in PROMPTS * 3
            )
        )
    for answer in answers:
        assert (answer.choices[0].finish_reason, bool(re.fullmatch(wanted, answer.choices[0].text))) == ("stop", True)
    for name in cluster.nodes:
        assert cluster.metric(name, "treadle_node_output_tokens_total") > before[name], f"{name} had a part"
    cluster.wait_idle()


async def test_beams_go_to_the_node_that_has_them(cluster: Cluster) -> None:
    """However many come: those that the other could not do wait for it."""
    before = {name: cluster.metric(name, "treadle_node_output_tokens_total") for name in cluster.nodes}
    async with openai_client(cluster) as client:
        answers = await asyncio.gather(
            *(
                client.completions.create(
                    model="smol", prompt=prompt, max_tokens=8, n=2, extra_body={"use_beam_search": True}
                )
                for prompt in PROMPTS
            )
        )
    assert [len({choice.text for choice in answer.choices}) for answer in answers] == [2] * len(PROMPTS)
    assert cluster.metric(VLLM, "treadle_node_output_tokens_total") == before[VLLM]
    assert cluster.metric(OURS, "treadle_node_output_tokens_total") > before[OURS]
    cluster.wait_idle()


async def test_a_client_that_leaves_frees_the_memory_that_it_had(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        streams = [
            await client.completions.create(
                model="smol", prompt=PROMPTS[0], max_tokens=500, stream=True, extra_body={"ignore_eos": True}
            )
            for _ in range(4)
        ]
        for stream in streams:
            await anext(aiter(stream))
            await stream.close()
    cluster.wait_idle()


async def test_an_engine_core_that_is_killed_loses_no_token_and_doubles_none(cluster: Cluster) -> None:
    asks = [Ask("smol", PROMPTS[number % len(PROMPTS)], 200) for number in range(8)]
    died = cluster.status(VLLM)["engine_pid"]
    before = cluster.metric(VLLM, "treadle_node_output_tokens_total")
    async with openai_client(cluster) as client:
        answers = asyncio.create_task(complete(client, asks))
        await asyncio.to_thread(
            wait_for, "vLLM runs", lambda: cluster.metric(VLLM, "treadle_node_output_tokens_total") > before + 10
        )
        process_named(died, "EngineCore").send_signal(signal.SIGKILL)
        done = await answers
    assert {(answer.num_tokens, answer.finish_reason) for answer in done} == {(200, "length")}
    assert members(died) == []
    await asyncio.to_thread(wait_for, "the node serves again", lambda: cluster.get(VLLM, "/readyz")[0] == 200, UP_S)
    await asyncio.to_thread(cluster.wait_idle)


@pytest.mark.parametrize("victim", ["redis", VLLM])
async def test_what_dies_beside_the_engine_loses_no_token_and_leaves_no_process(cluster: Cluster, victim: str) -> None:
    """Redis, and the agent: with it goes its engine, and comes again."""
    asks = [Ask("smol", PROMPTS[number % len(PROMPTS)], 150) for number in range(6)]
    engine = cluster.status(VLLM)["engine_pid"]
    before = cluster.metric(VLLM, "treadle_node_output_tokens_total")
    async with openai_client(cluster) as client:
        answers = asyncio.create_task(complete(client, asks))
        await asyncio.to_thread(
            wait_for, "vLLM runs", lambda: cluster.metric(VLLM, "treadle_node_output_tokens_total") > before + 10
        )
        shared = shared_by(engine)
        await asyncio.to_thread(cluster.kill, victim)
        up = await asyncio.to_thread(cluster.treadle, "up", "--wait-s", str(UP_S))
        assert up.returncode == 0, up.stderr
        done = await answers
    assert {(answer.num_tokens, answer.finish_reason) for answer in done} == {(150, "length")}
    if victim == VLLM:
        assert left(engine) == []
        assert shared
        await asyncio.to_thread(wait_for, "nothing is shared", lambda: not any(path.exists() for path in shared))
    await asyncio.to_thread(wait_for, "the node serves", lambda: cluster.get(VLLM, "/readyz")[0] == 200, UP_S)
    await asyncio.to_thread(cluster.wait_idle)
