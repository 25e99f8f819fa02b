"""A node that prefills and one that decodes: requests change between them with their KV, and no token changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.collector import Collector
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway

pytestmark = pytest.mark.usefixtures("model_file")

NUM_TOKENS = 120  # some seconds of work
ASKS = [Ask("smol", prompt, NUM_TOKENS) for prompt in PROMPTS]
MAX_ROUNDS = 10


@contextmanager
def started(
    folder: Path, phases: list[str], collector: Collector | None = None, models: tuple[str, ...] = ("smol",)
) -> Iterator[Cluster]:
    """A cluster with a node for each of ``phases``, called as they are; ``models`` are names of the same weights."""
    weights = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 1024}
    cluster = Cluster.create(
        folder,
        models=[{"name": name, **weights} for name in models],
        nodes=[{"name": one, "phases": one} for one in phases],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 128 << 20},
        **({"otlp_endpoint": collector.url} if collector is not None else {}),
    )
    cluster.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"  # ms between two exports of spans
    with cluster.running():
        yield cluster


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What `ASKS` are answered by a node that does all of it."""

    async def ask(cluster: Cluster) -> list[str]:
        async with openai_client(cluster) as client:
            return [answer.text for answer in await complete(client, ASKS)]

    with started(tmp_path_factory.mktemp("plain"), ["both"]) as cluster:
        return asyncio.run(ask(cluster))


async def test_prompts_are_computed_at_one_node_and_tokens_drawn_at_the_other(
    tmp_path: Path, own_collector: Collector, expected: list[str]
) -> None:
    with started(tmp_path, ["prefill", "decode"], own_collector) as cluster:
        async with openai_client(cluster) as client:
            answers = await complete(client, ASKS)
            ended_at_once = await complete(client, [Ask("smol", PROMPTS[0], 1)])
        assert [answer.text for answer in answers] == expected
        assert [answer.num_tokens for answer in ended_at_once] == [1], "it had no reason to move"
        cluster.wait_idle()
        resumed = {
            tier: cluster.metric("decode", "treadle_resumed_requests_total", tier=tier) for tier in ("evicted", "none")
        }
        assert resumed["none"] == 0
        assert resumed["evicted"] >= len(ASKS), "and more where a slow machine has some give way there"
        assert cluster.metric("decode", "treadle_kv_transfer_bytes_total", direction="in") > 0
        assert cluster.metric("decode", "treadle_kv_transfer_failures_total") == 0
        assert cluster.metric("decode", "treadle_node_output_tokens_total") > 0.8 * len(ASKS) * NUM_TOKENS
    transfers = [span for span in own_collector.spans if span.name == "kv transfer"]
    moved = {transfer.trace_id for transfer in transfers}
    assert len(moved) == len(ASKS)
    for trace_id in moved:
        nodes = [span.attributes["treadle.node"] for span in own_collector.trace(trace_id) if span.name == "node run"]
        assert nodes[0] == "prefill"
        assert set(nodes[1:]) == {"decode"}, "behind the move, in one trace"


@pytest.mark.parametrize("dying", ["prefill", "decode"])
async def test_either_node_dies_in_the_middle_of_answers_and_the_other_one_does_all_of_it(
    tmp_path: Path, expected: list[str], dying: str
) -> None:
    with started(tmp_path, ["prefill", "decode"]) as cluster:
        async with openai_client(cluster) as client:
            answers = [Answer() for _ in ASKS]
            tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
            await underway(answers, tasks)
            cluster.kill(dying)
            late = await complete(client, ASKS[:2])
            await asyncio.gather(*tasks)
        assert [answer.text for answer in answers] == expected
        assert [answer.text for answer in late] == expected[:2]
        assert cluster.missing() == [dying]


async def test_the_node_that_decodes_takes_the_model_that_is_asked_for(tmp_path: Path, expected: list[str]) -> None:
    """Each node has room for one model; both begin with the first.

    What they load afterwards, for those who are expected to come, is another matter.
    """
    with started(tmp_path, ["prefill", "decode"], models=("smol", "other")) as cluster:
        for model in ("smol", "other", "smol"):
            before = num_resumed(cluster)
            for _ in range(MAX_ROUNDS):  # the first of a model may be over before the other node has loaded it
                async with openai_client(cluster) as client:
                    answers = await complete(client, [replace(ask, model=model) for ask in ASKS])
                assert [answer.text for answer in answers] == expected
                cluster.wait_idle()
                if num_resumed(cluster) > before:
                    break
            assert num_resumed(cluster) > before, "it has gone on with some of these, for which it has loaded the model"


def num_resumed(cluster: Cluster) -> float:
    """Requests that the node which decodes has gone on with, with their KV."""
    return cluster.metric("decode", "treadle_resumed_requests_total", tier="evicted")
