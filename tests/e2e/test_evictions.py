"""Long answers give way to urgent ones on a live node, or move to another one, and go on there: no token changes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.collector import Collector
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway
from tests.e2e.wide_model import TOKEN_BYTES, write_wide_model
from tests.redis.waiting import until

pytestmark = pytest.mark.usefixtures("model_file")

NUM_SEQS = 3
NUM_URGENT = 8  # tokens
LONG = 400  # tokens; at least some seconds of work
ASKS = [Ask("first", prompt, LONG, "batch") for prompt in PROMPTS[:NUM_SEQS]]


@pytest.fixture(scope="module")
def known_answers() -> list[str]:
    """What `ASKS` are answered where nobody disturbs them: asked once, the answers are the same on every node."""
    return []


async def ask_once(client: AsyncOpenAI, known_answers: list[str]) -> list[str]:
    if not known_answers:
        known_answers += [answer.text for answer in await complete(client, ASKS)]
    return known_answers


SMOLLM2 = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 8192}


@contextmanager
def started(
    folder: Path, models: list[str], num_nodes: int, collector: Collector, weights: dict[str, Any] = SMOLLM2
) -> Iterator[Cluster]:
    """A cluster whose nodes run three requests at a time, with a promise that leaves no time to wait."""
    cluster = Cluster.create(
        folder,
        models=[{"name": name, **weights} for name in models],
        nodes=[{"name": f"node-{number}"} for number in range(num_nodes)],
        engine={"max_num_seqs": NUM_SEQS, "kv_cache_bytes": 512 << 20},
        slo_classes={"urgent": {"ttft_s": 0.5}, "batch": {"deadline_s": 7200}},
        gateway={"default_slo": "batch"},
        otlp_endpoint=collector.url,
    )
    cluster.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"  # ms between two exports of spans
    with cluster.running():
        yield cluster


@asynccontextmanager
async def long_answers(client: AsyncOpenAI) -> AsyncIterator[list[Answer]]:
    """Answers that are under way inside of the block, and complete behind it."""
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


async def test_long_answers_give_way_to_urgent_ones_of_their_model_and_of_another(
    tmp_path: Path, own_collector: Collector, known_answers: list[str]
) -> None:
    with started(tmp_path, ["first", "second"], num_nodes=1, collector=own_collector) as cluster:
        async with openai_client(cluster) as client:
            expected = await ask_once(client, known_answers)
            num_evicted = []
            async with long_answers(client) as answers:
                for model in cluster.models:
                    (urgent,) = await complete(client, [Ask(model, PROMPTS[-1], NUM_URGENT, "urgent")])
                    assert urgent.num_tokens == NUM_URGENT
                    assert [answer.finish_reason for answer in answers] == [None] * NUM_SEQS, "it waited for no end"
                    num_evicted.append(cluster.metric("node-0", "treadle_evictions_total"))
        assert num_evicted[0] == 1
        assert num_evicted[1] >= NUM_SEQS, "all that ran; who was evicted first may not have been back"
        assert [answer.text for answer in answers] == expected
        cluster.wait_idle()
        assert cluster.metric("node-0", "treadle_restored_kv_tokens_total") > 0
        check_offload(cluster)
    check_trace_of_an_evicted_request(own_collector)


def check_offload(cluster: Cluster) -> None:
    """All went on with their KV. What the device still had of it was not moved back."""
    moved_out, moved_in = (
        cluster.metric("node-0", "treadle_kv_moved_bytes_total", tier="evicted", direction=direction)
        for direction in ("out", "in")
    )
    assert moved_out >= moved_in > 0
    resumed = {
        tier: cluster.metric("node-0", "treadle_resumed_requests_total", tier=tier)
        for tier in ("evicted", "swapped", "none")
    }
    assert resumed == {"evicted": cluster.metric("node-0", "treadle_evictions_total"), "swapped": 0, "none": 0}


def check_trace_of_an_evicted_request(collector: Collector) -> None:
    """It ran, gave way with its KV, waited, and went on: in one trace, below the gateway's span."""
    evicted = [span for span in collector.spans if "evicted" in span.events]
    assert evicted
    for span in evicted:
        spans = collector.trace(span.trace_id)
        waits = [other for other in spans if other.name == "queue wait" and other.start_s >= span.end_s - 0.002]
        runs = [other for other in spans if other.name == "node run" and other.start_s >= span.end_s]
        assert span.attributes["treadle.evicted"] is True
        assert waits[0].attributes["treadle.kv_at"] == "node-0"
        assert waits[0].end_s <= runs[0].start_s
        assert {span.parent_id, waits[0].parent_id, runs[0].parent_id} == {spans[0].span_id}


async def test_a_node_that_is_asked_to_stop_hands_its_long_answers_over(
    tmp_path: Path, own_collector: Collector, known_answers: list[str]
) -> None:
    with started(tmp_path, ["first"], num_nodes=2, collector=own_collector) as cluster:
        async with openai_client(cluster) as client:
            expected = await ask_once(client, known_answers)
            async with long_answers(client) as answers:
                busiest = max(cluster.nodes, key=lambda name: cluster.status(name)["num_running"])
                os.kill(cluster.pids()[busiest], signal.SIGTERM)
        assert [answer.text for answer in answers] == expected
        logs = cluster.logs()
        assert '"is_drained":true' in logs[f"{busiest}.log"]
        assert not any('"event":"image' in text for text in logs.values()), "none was lost"
        check_moved(cluster, busiest, at_least_bytes=1)
        cluster.up()
        cluster.wait_idle()
    transfers = [span for span in own_collector.spans if span.name == "kv transfer"]
    assert transfers
    assert not any(span.attributes["treadle.is_lost"] for span in transfers)


def check_moved(cluster: Cluster, gone: str, at_least_bytes: int) -> None:
    """All that one node had went on at the other one with its KV: nothing was computed again, nothing was lost."""
    (other,) = [name for name in cluster.nodes if name != gone]
    assert cluster.metric(other, "treadle_kv_transfer_bytes_total", direction="in") >= at_least_bytes
    assert cluster.metric(other, "treadle_kv_transfer_failures_total") == 0
    assert cluster.metric(other, "treadle_resumed_requests_total", tier="none") == 0
    assert cluster.metric(other, "treadle_resumed_requests_total", tier="evicted") > 0


MAX_REDIS_BYTES = 64 << 20  # that an image might have when they went through Redis
LONG_PROMPT = " ".join(f"{number} is a number." for number in range(100, 175))


async def test_an_answer_behind_a_long_prompt_goes_on_elsewhere_with_all_its_kv(
    tmp_path: Path, own_collector: Collector
) -> None:
    assert len(LONG_PROMPT) * TOKEN_BYTES > MAX_REDIS_BYTES, "each character is a token"
    ask = Ask("first", LONG_PROMPT, LONG, "batch")
    wide = {"source": str(write_wide_model(tmp_path / "wide.gguf"))}
    with started(tmp_path, ["first"], num_nodes=2, collector=own_collector, weights=wide) as cluster:
        async with openai_client(cluster) as client:
            (expected,) = await complete(client, [ask])
            answer = Answer()
            task = asyncio.create_task(stream(client, ask, answer))
            await underway([answer], [task])
            (running,) = [name for name in cluster.nodes if cluster.status(name)["num_running"]]
            os.kill(cluster.pids()[running], signal.SIGTERM)
            await task
        assert answer.text == expected.text
        check_moved(cluster, running, at_least_bytes=MAX_REDIS_BYTES)


@pytest.mark.parametrize(("fate", "reason"), [(signal.SIGKILL, "unreachable"), (signal.SIGSTOP, "slow")])
async def test_kv_whose_giver_dies_or_stands_still_is_computed_again_and_no_token_changes(
    tmp_path: Path, own_collector: Collector, known_answers: list[str], fate: signal.Signals, reason: str
) -> None:
    with started(tmp_path, ["first"], num_nodes=2, collector=own_collector) as cluster:
        async with openai_client(cluster) as client:
            expected = await ask_once(client, known_answers)
            answer = Answer()
            task = asyncio.create_task(stream(client, ASKS[0], answer))
            await underway([answer], [task])
            (giver,) = [name for name in cluster.nodes if cluster.status(name)["num_running"]]
            (taker,) = [name for name in cluster.nodes if name != giver]
            pids = cluster.pids()
            os.kill(pids[taker], signal.SIGSTOP)  # so that it comes too late
            os.kill(pids[giver], signal.SIGTERM)
            await until(lambda: has_given(cluster, giver))
            os.kill(pids[giver], fate)
            os.kill(pids[taker], signal.SIGCONT)
            await task
        if fate is signal.SIGSTOP:
            os.kill(pids[giver], signal.SIGKILL)
        assert answer.text == expected[0]
        assert cluster.metric(taker, "treadle_kv_transfer_failures_total", reason=reason) == 1
        assert cluster.metric(taker, "treadle_resumed_requests_total", tier="none") == 1
        assert cluster.metric(taker, "treadle_kv_transfer_bytes_total", direction="in") == 0


async def has_given(cluster: Cluster, node: str) -> bool:
    """It has handed a request over, the queue knows of it, and the node waits for whoever fetches the KV."""
    status = await asyncio.to_thread(cluster.status, node)
    num_waiting = await asyncio.to_thread(cluster.metric, "queue-manager", "treadle_queue_waiting_requests")
    return status.get("given_images") == 1 and num_waiting == 1
