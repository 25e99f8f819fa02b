"""Long answers give way to urgent ones on a live node, or move to another one, and go on there: no token changes.

The model is a small one: what it answers depends on all before it, too, and each token has 64 KiB of keys and values.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.collector import Collector, Span, collecting
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway
from tests.e2e.wide_model import TOKEN_BYTES, write_wide_model
from tests.redis.waiting import until

NUM_SEQS = 3
NUM_URGENT = 8  # tokens
LONG = 300  # tokens; at least a second of work
ASKS = [Ask("first", prompt, LONG, "batch") for prompt in PROMPTS[:NUM_SEQS]]
LONGER_ASKS = [replace(ask, max_tokens=2 * LONG) for ask in ASKS]
"""So long that other requests end before."""


@contextmanager
def started(folder: Path, models: list[str], num_nodes: int, collector: Collector) -> Iterator[Cluster]:
    """A cluster whose nodes run three requests at a time, with a promise that leaves no time to wait."""
    weights = {"source": str(write_wide_model(folder / "wide.gguf"))}
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


@pytest.fixture(scope="module")
def shared_collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def shared_nodes(tmp_path_factory: pytest.TempPathFactory, shared_collector: Collector) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("two"), ["first"], num_nodes=2, collector=shared_collector) as cluster:
        yield cluster


@pytest.fixture
def two_nodes(shared_nodes: Cluster) -> Cluster:
    """Two nodes of one model, both of which live and have nothing to do, whatever was done to one of them before."""
    shared_nodes.up()
    shared_nodes.wait_idle()
    return shared_nodes


@asynccontextmanager
async def long_answers(client: AsyncOpenAI, asks: Sequence[Ask]) -> AsyncIterator[list[Answer]]:
    """Answers that are under way inside of the block, and complete behind it."""
    answers = [Answer() for _ in asks]
    tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(asks, answers, strict=True)]
    try:
        await underway(answers, tasks)
        yield answers
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_long_answers_give_way_to_urgent_ones_of_their_model_and_of_another(
    tmp_path: Path, own_collector: Collector
) -> None:
    with started(tmp_path, ["first", "second"], num_nodes=1, collector=own_collector) as cluster:
        async with openai_client(cluster) as client:
            expected = [answer.text for answer in await complete(client, LONGER_ASKS)]
            num_evicted = []
            async with long_answers(client, LONGER_ASKS) as answers:
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


METRICS: dict[str, tuple[str, dict[str, str]]] = {
    "moved bytes": ("treadle_kv_transfer_bytes_total", {"direction": "in"}),
    "failures": ("treadle_kv_transfer_failures_total", {}),
    "unreachable": ("treadle_kv_transfer_failures_total", {"reason": "unreachable"}),
    "slow": ("treadle_kv_transfer_failures_total", {"reason": "slow"}),
    "computed again": ("treadle_resumed_requests_total", {"tier": "none"}),
    "went on": ("treadle_resumed_requests_total", {"tier": "evicted"}),
}


class Counts:
    """What nodes, and the logs of their cluster, count from here on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = {node: self._now(node) for node in cluster.nodes}
        self._logs = cluster.logs()

    def _now(self, node: str) -> dict[str, float]:
        return {name: self._cluster.metric(node, metric, **labels) for name, (metric, labels) in METRICS.items()}

    def since(self, node: str) -> dict[str, float]:
        """By a node that has lived all the time."""
        return {name: value - self._before[node][name] for name, value in self._now(node).items()}

    def logged(self, text: str, process: str = "") -> int:
        """How often ``text`` came into the logs of all processes, or of one."""
        return sum(
            log.count(text) - self._logs.get(name, "").count(text)
            for name, log in self._cluster.logs().items()
            if name.startswith(process)
        )


def runner_and_other(cluster: Cluster) -> tuple[str, str]:
    """The node that runs the most, and the other one."""
    first, second = sorted(cluster.nodes, key=lambda name: -cluster.status(name)["num_running"])
    return first, second


async def test_a_node_that_is_asked_to_stop_hands_its_long_answers_over(
    two_nodes: Cluster, shared_collector: Collector
) -> None:
    async with openai_client(two_nodes) as client:
        expected = [answer.text for answer in await complete(client, ASKS)]
        num_spans, counts = len(shared_collector.spans), Counts(two_nodes)
        async with long_answers(client, ASKS) as answers:
            busiest, other = runner_and_other(two_nodes)
            os.kill(two_nodes.pids()[busiest], signal.SIGTERM)
    assert [answer.text for answer in answers] == expected
    wait_for("the node's end", lambda: two_nodes.missing() == [busiest])
    assert counts.logged('"is_drained":true', busiest) == 1
    assert counts.logged('"event":"image') == 0, "none was lost"
    check_moved(counts.since(other), at_least_bytes=1)

    def transfers() -> list[Span]:
        return [span for span in shared_collector.spans[num_spans:] if span.name == "kv transfer"]

    wait_for("spans of what moved", lambda: len(transfers()) >= counts.since(other)["went on"] > 0)
    assert not any(span.attributes["treadle.is_lost"] for span in transfers())


def check_moved(since: dict[str, float], at_least_bytes: int) -> None:
    """All that another node had went on here with its KV: nothing was computed again, nothing was lost."""
    assert since["moved bytes"] >= at_least_bytes
    assert (since["failures"], since["computed again"]) == (0, 0)
    assert since["went on"] > 0


MAX_REDIS_BYTES = 64 << 20  # that an image might have when they went through Redis
LONG_PROMPT = " ".join(f"{number} is a number." for number in range(100, 175))


async def test_an_answer_behind_a_long_prompt_goes_on_elsewhere_with_all_its_kv(two_nodes: Cluster) -> None:
    assert len(LONG_PROMPT) * TOKEN_BYTES > MAX_REDIS_BYTES, "each character is a token"
    ask = Ask("first", LONG_PROMPT, LONG, "batch")
    async with openai_client(two_nodes) as client:
        (expected,) = await complete(client, [ask])
        counts, answer = Counts(two_nodes), Answer()
        task = asyncio.create_task(stream(client, ask, answer))
        await underway([answer], [task])
        running, other = runner_and_other(two_nodes)
        os.kill(two_nodes.pids()[running], signal.SIGTERM)
        await task
    assert answer.text == expected.text
    check_moved(counts.since(other), at_least_bytes=MAX_REDIS_BYTES)


@pytest.mark.parametrize(("fate", "reason"), [(signal.SIGKILL, "unreachable"), (signal.SIGSTOP, "slow")])
async def test_kv_whose_giver_dies_or_stands_still_is_computed_again_and_no_token_changes(
    two_nodes: Cluster, fate: signal.Signals, reason: str
) -> None:
    async with openai_client(two_nodes) as client:
        (expected,) = await complete(client, ASKS[:1])
        counts, answer = Counts(two_nodes), Answer()
        task = asyncio.create_task(stream(client, ASKS[0], answer))
        await underway([answer], [task])
        giver, taker = runner_and_other(two_nodes)
        pids = two_nodes.pids()
        os.kill(pids[taker], signal.SIGSTOP)  # so that it comes too late
        os.kill(pids[giver], signal.SIGTERM)
        await until(lambda: has_given(two_nodes, giver))
        os.kill(pids[giver], fate)
        os.kill(pids[taker], signal.SIGCONT)
        await task
    if fate is signal.SIGSTOP:
        os.kill(pids[giver], signal.SIGKILL)
    assert answer.text == expected.text
    since = counts.since(taker)
    assert (since["failures"], since[reason]) == (1, 1)
    assert (since["computed again"], since["moved bytes"]) == (1, 0)


async def has_given(cluster: Cluster, node: str) -> bool:
    """It has handed a request over, the queue knows of it, and the node waits for whoever fetches the KV."""
    status = await asyncio.to_thread(cluster.status, node)
    num_waiting = await asyncio.to_thread(cluster.metric, "queue-manager", "treadle_queue_waiting_requests")
    return status.get("given_images") == 1 and num_waiting == 1
