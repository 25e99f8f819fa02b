"""Embeddings of a real, small model beside chats: what they are, and that a node that dies takes none with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from openai import AsyncOpenAI

from gateway.models.gguf_model import read_gguf
from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from shared.config.engines.engine import EngineOptions, ModelSpec
from tests.e2e.cluster import POLL_S, WAIT_S, Cluster, wait_for
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client
from tests.gpu_node import tiny

TEXTS = ("Paris is the capital of France.", "The capital of France is Paris.", "A recipe for apple pie.")
ROUNDED = 0.998
"""Least cosine of the CPU device's bfloat16 beside float32."""


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory, model_file: Path) -> Iterator[Cluster]:
    """One model that embeds and one that generates, which take turns on two nodes."""
    model = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512}
    cluster = Cluster.create(
        tmp_path_factory.mktemp("embeddings"),
        models=[model | {"name": "texts", "task": "embed"}, model | {"name": "chat"}],
        nodes=[{"name": "node-0"}, {"name": "node-1"}],
        engine={"max_num_seqs": 8, "kv_cache_bytes": 64 << 20},
        batches={"enabled": True},
    )
    with cluster.running():
        yield cluster


async def embedded(client: AsyncOpenAI, texts: Sequence[str]) -> torch.Tensor:
    answer = await client.embeddings.create(model="texts", input=list(texts))
    return torch.tensor([one.embedding for one in answer.data])


def by_reference(texts: Sequence[str], path: Path) -> torch.Tensor:
    """float32 by plain torch, with the gateway's own tokens."""
    tokenizer = read_gguf(path).tokenizer
    options = EngineOptions(kv_cache_bytes=64 << 20)
    engine = Engine(ReferenceExecutor(options), options)
    engine.load_model(ModelSpec(name="texts", source=str(path), max_model_len=512, task="embed"))
    for number, text in enumerate(texts):
        payload = tiny.request(str(number), tokenizer.encode(text), 1, model="texts", is_embedding=True)
        assert engine.add(payload) == []
    chunks = {chunk.request_id: chunk.embedding for told in tiny.steps(engine) for chunk in told}
    rows = [torch.frombuffer(bytearray(chunks[str(number)]), dtype=torch.float32) for number in range(len(texts))]
    return torch.nn.functional.normalize(torch.stack(rows))


async def test_they_are_those_of_the_reference_and_chats_go_on_beside_them(
    embedding: Cluster, model_file: Path
) -> None:
    async with openai_client(embedding) as client:
        found, (chat,) = await asyncio.gather(embedded(client, TEXTS), complete(client, [Ask("chat", PROMPTS[0], 20)]))
        again = await embedded(client, TEXTS)
    assert chat.num_tokens == 20
    assert torch.equal(found, again)
    num_texts = [embedding.metric(node, "treadle_node_pooled_texts_total", model="texts") for node in embedding.nodes]
    assert sum(num_texts) == 2 * len(TEXTS)
    assert torch.allclose(found.norm(dim=1), torch.ones(len(TEXTS)))
    assert float((found * by_reference(TEXTS, model_file)).sum(dim=1).min()) > ROUNDED


async def test_a_node_that_dies_takes_none_with_it(embedding: Cluster) -> None:
    texts = [f"Number {number}: {TEXTS[number % 3] * 3}" for number in range(48)]
    async with openai_client(embedding) as client:
        calm = await embedded(client, texts)
        asking = asyncio.create_task(embedded(client, texts))

        def busiest() -> str:
            running = {name: embedding.status(name)["num_running"] for name in embedding.nodes}
            return max(running, key=lambda name: running[name]) if any(running.values()) else ""

        name = await asyncio.to_thread(wait_for, "a node embeds", busiest)
        os.kill(embedding.pids()[name], signal.SIGKILL)
        assert torch.equal(await asking, calm)
    embedding.up()


async def test_a_batch_of_them(embedding: Cluster) -> None:
    lines = [
        {"custom_id": text, "method": "POST", "url": "/v1/embeddings", "body": {"model": "texts", "input": text}}
        for text in TEXTS
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    async with openai_client(embedding) as client:
        alone = await embedded(client, TEXTS)
        file = await client.files.create(file=("in.jsonl", data), purpose="batch")
        made = await client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
        async with asyncio.timeout(WAIT_S):
            while (made := await client.batches.retrieve(made.id)).status != "completed":  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        assert made.output_file_id is not None
        answers = [json.loads(line) for line in (await client.files.content(made.output_file_id)).text.splitlines()]
    found = {one["custom_id"]: one["response"]["body"]["data"][0]["embedding"] for one in answers}
    assert torch.allclose(torch.tensor([found[text] for text in TEXTS]), alone)
