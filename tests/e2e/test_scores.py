"""Documents scored by real, small models beside chats: what the scores are, and that a node that dies loses none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.answers.relevance import relevance
from gateway.models.models import load_models
from gateway.models.score_form import Cut, Question
from gpu_node.engine.engine import Engine
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE, ClusterConfig
from shared.config.engines.engine import EngineOptions
from tests.e2e.cluster import POLL_S, WAIT_S, Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client

QUERY = "What is the capital of France?"
DOCUMENTS = ("Paris is the capital of France.", "A recipe for apple pie.", "The capital of Italy is Rome.")
PROMPT = (
    "<|im_start|>system\n{instruction} Answer yes or no.<|im_end|>\n"
    "<|im_start|>user\nQuestion: {query}\nText: {document}<|im_end|>\n<|im_start|>assistant\n"
)
SCORE: dict[str, Any] = {
    "prompt": PROMPT,
    "instruction": "Does the text answer the question?",
    "labels": ["No", "Yes"],
}
MODEL: dict[str, Any] = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512}
JUDGE = MODEL | {"name": "judge", "task": "score", "score": SCORE}
CLOSE = 0.05
"""Of the CPU device's bfloat16 beside float32."""


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory, model_file: Path) -> Iterator[Cluster]:
    """One model that scores and one that generates, which take turns on two nodes."""
    cluster = Cluster.create(
        tmp_path_factory.mktemp("scores"),
        models=[JUDGE, MODEL | {"name": "chat"}],
        nodes=[{"name": "node-0"}, {"name": "node-1"}],
        engine={"max_num_seqs": 8, "kv_cache_bytes": 64 << 20},
        batches={"enabled": True},
    )
    with cluster.running():
        yield cluster


async def reranked(cluster: Cluster, documents: Sequence[str], **fields: Any) -> Any:
    body = {"model": "judge", "query": QUERY, "documents": list(documents)} | fields
    async with aiohttp.ClientSession(cluster.url) as http, http.post("/v1/rerank", json=body) as response:
        assert response.status == 200
        return await response.json()


def scores_of(answer: Any) -> list[float]:
    """In the order of the documents."""
    return [one["relevance_score"] for one in sorted(answer["results"], key=lambda one: one["index"])]


def by_reference(documents: Sequence[str]) -> list[float]:
    """float32 by plain torch, which is imported here: not where this is collected. Of the gateway's own prompts."""
    from gpu_node.executors.reference.executor import ReferenceExecutor
    from tests.gpu_node import tiny

    config = ClusterConfig.model_validate({"models": [JUDGE]})
    (spec,), model = config.models, load_models(config)["judge"]
    assert model.score is not None
    options = EngineOptions(kv_cache_bytes=64 << 20)
    engine = Engine(ReferenceExecutor(options), options)
    engine.load_model(spec)
    asked = Question(QUERY, SCORE["instruction"])
    for number, document in enumerate(documents):
        prompt = model.score.tokens(model.tokenizer, asked, document, Cut())
        assert engine.add(tiny.request(str(number), prompt, 1, model="judge", is_embedding=True)) == []
    chunks = {chunk.request_id: chunk.embedding for told in tiny.steps(engine) for chunk in told}
    return [relevance(chunks[str(number)]) for number in range(len(documents))]


async def test_they_are_those_of_the_reference_and_chats_go_on_beside_them(scoring: Cluster) -> None:
    async with openai_client(scoring) as client:
        found, (chat,) = await asyncio.gather(
            reranked(scoring, DOCUMENTS), complete(client, [Ask("chat", PROMPTS[0], 20)])
        )
    assert chat.num_tokens == 20
    assert scores_of(found) == pytest.approx(by_reference(DOCUMENTS), abs=CLOSE)
    again = await reranked(scoring, DOCUMENTS)
    assert scores_of(again) == scores_of(found)
    assert [one["relevance_score"] for one in again["results"]] == sorted(scores_of(again), reverse=True)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0.5 * again["usage"]["prompt_tokens"]


async def test_a_node_that_dies_takes_none_with_it(scoring: Cluster) -> None:
    documents = [f"Number {number}: {DOCUMENTS[number % 3] * 3}" for number in range(64)]
    asking = asyncio.create_task(reranked(scoring, documents))

    def busiest() -> str:
        running = {name: scoring.status(name)["num_running"] for name in scoring.nodes}
        return max(running, key=lambda name: running[name]) if any(running.values()) else ""

    name = await asyncio.to_thread(wait_for, "a node scores", busiest)
    os.kill(scoring.pids()[name], signal.SIGKILL)
    found = scores_of(await asking)
    assert len(found) == len(documents)
    scoring.up()
    assert scores_of(await reranked(scoring, documents)) == found


async def test_a_batch_of_them(scoring: Cluster) -> None:
    body = {"model": "judge", "query": QUERY, "documents": list(DOCUMENTS)}
    line = {"custom_id": "one", "method": "POST", "url": "/v1/rerank", "body": body}
    alone = await reranked(scoring, DOCUMENTS)
    async with openai_client(scoring) as client:
        file = await client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
        fields: dict[str, Any] = {"endpoint": "/v1/rerank", "completion_window": "24h"}
        made = await client.batches.create(input_file_id=file.id, **fields)
        async with asyncio.timeout(WAIT_S):
            while (made := await client.batches.retrieve(made.id)).status != "completed":  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        assert made.output_file_id is not None
        (answer,) = [json.loads(line) for line in (await client.files.content(made.output_file_id)).text.splitlines()]
    assert answer["response"]["body"]["results"] == alone["results"]
