"""Long answers give way to urgent ones on a live node and go on where they were: no token changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway

NUM_SEQS = 3
LONG = 600  # tokens; at least some seconds of work
NUM_URGENT = 8  # tokens


@pytest.fixture(scope="module")
def one_node(tmp_path_factory: pytest.TempPathFactory, model_file: Path) -> Iterator[Cluster]:
    """Two models on one node, which runs three requests at a time, and a promise that leaves no time to wait."""
    assert model_file.exists()
    models = [{"name": name, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256} for name in ("first", "second")]
    cluster = Cluster.create(
        tmp_path_factory.mktemp("evictions"),
        models=[model | {"max_model_len": 2048} for model in models],
        nodes=[{"name": "node-0"}],
        engine={"max_num_seqs": NUM_SEQS, "kv_cache_bytes": 512 << 20},
        slo_classes={"urgent": {"ttft_s": 0.5}, "batch": {"deadline_s": 7200}},
        gateway={"default_slo": "batch"},
    )
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
    assert cluster.members() == []


async def test_long_answers_give_way_to_urgent_ones_of_their_model_and_of_another_and_stay_the_same(
    one_node: Cluster,
) -> None:
    asks = [Ask("first", prompt, LONG, "batch") for prompt in PROMPTS[:NUM_SEQS]]
    async with openai_client(one_node) as client:
        expected = [answer.text for answer in await complete(client, asks)]
        answers = [Answer() for _ in asks]
        running = [asyncio.create_task(stream(client, *pair)) for pair in zip(asks, answers, strict=True)]
        try:
            await underway(answers, running)
            num_evicted = []
            for model in one_node.models:
                (urgent,) = await complete(client, [Ask(model, PROMPTS[-1], NUM_URGENT, "urgent")])
                assert urgent.num_tokens == NUM_URGENT
                assert [answer.finish_reason for answer in answers] == [None] * NUM_SEQS, "nobody waited for their ends"
                num_evicted.append(one_node.metric("node-0", "treadle_evictions_total"))
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    assert num_evicted[0] == 1
    assert num_evicted[1] >= NUM_SEQS, "all that ran; who was evicted first may not have been back"
    assert [answer.text for answer in answers] == expected
    assert one_node.metric("node-0", "treadle_evicted_kv_tokens_total") > num_evicted[-1]
    one_node.wait_idle()
