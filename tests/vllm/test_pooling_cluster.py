"""A cluster whose only node has vLLM: embeddings and scores through the gateway, beside text, of models that change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, processors

from tests.e2e import test_embeddings, test_scores
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client
from tests.gateway.hf_tiny import size_of, unigram, write_directory
from tests.gpu_node import score_model
from tests.vllm import pooling_models

UP_S = 400
BEGIN, END = 1, 2
CLOSE = 0.01
"""Of two engines that both compute in float32, of weights that one of them has rounded."""


@dataclass(frozen=True)
class Encoders:
    """Two small XLM-RoBERTas, one with a head, and their vocabulary of SentencePiece: texts are between two tokens."""

    folder: Path
    plain: Any
    cross: Any

    def ids(self, text: str) -> list[int]:
        """By the files' own rules, with the tokens around it."""
        tokenizer = Tokenizer.from_file(str(self.folder / "plain" / "tokenizer.json"))
        found: list[int] = tokenizer.encode(text).ids
        assert (found[0], found[-1]) == (BEGIN, END)
        return found


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Encoders:
    folder = tmp_path_factory.mktemp("encoders")
    holder = Tokenizer(models.BPE())
    tokens = [("<s>", BEGIN), ("</s>", END)]
    holder.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=tokens)
    around = json.loads(holder.to_str())["post_processor"]
    for name in ("plain", "cross"):
        write_directory(folder / name, "unigram", tokenizer={"post_processor": around})
    plain = pooling_models.write_encoder(folder / "plain", size_of(unigram()))
    pooling_models.write_pooling(folder / "plain", "mean_tokens")
    return Encoders(folder, plain, pooling_models.write_cross_encoder(folder / "cross", size_of(unigram())))


@pytest.fixture(scope="module")
def cluster(
    smol: Path,
    encoders: Encoders,
    vllm_python: Path,
    redis_program: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Up while the tests of this file run; of its five models, two stay at a time."""
    del redis_program
    model = {"source": str(smol), "max_model_len": 512}
    vllm = {"python": str(vllm_python), "args": ["--dtype", "float32"]}
    one = Cluster.create(
        tmp_path_factory.mktemp("cluster"),
        models=[
            model | {"name": "chat"},
            model | {"name": "texts", "task": "embed"},
            model | {"name": "judge", "task": "score", "score": test_scores.SCORE},
            {"name": "encoder", "source": str(encoders.folder / "plain"), "max_model_len": 512, "task": "embed"},
            {
                "name": "cross",
                "source": str(encoders.folder / "cross"),
                "max_model_len": 512,
                "task": "score",
                "score": {"prompt": "{query}</s></s>{document}"},
            },
        ],
        nodes=[{"name": "node-0", "engine": "vllm", "vllm": vllm}],
        engine={"max_num_seqs": 8, "kv_cache_bytes": 128 << 20, "host_models": 1, "step_timeout_s": 200},
    )
    try:
        done = one.treadle("up", "--wait-s", str(UP_S))
        assert done.returncode == 0, done.stderr + one.log_tails()
        yield one
    finally:
        one.down()
    assert one.members() == []


async def test_models_that_draw_embed_and_score_take_turns_on_one_node(cluster: Cluster, model_file: Path) -> None:
    texts, documents = test_embeddings.TEXTS, test_scores.DOCUMENTS
    async with openai_client(cluster) as client:
        found, judged, (chat,) = await asyncio.gather(
            test_embeddings.embedded(client, texts),
            test_scores.reranked(cluster, documents),
            complete(client, [Ask("chat", PROMPTS[0], 20)]),
        )
    assert chat.num_tokens == 20
    assert torch.allclose(found.norm(dim=1), torch.ones(len(texts)))
    similar = (found * test_embeddings.by_reference(texts, model_file)).sum(dim=1)
    assert float(similar.min()) > 1 - CLOSE
    assert test_scores.scores_of(judged) == pytest.approx(test_scores.by_reference(documents), abs=CLOSE)
    assert sorted(cluster.status("node-0")["broken_models"]) == []
    await asyncio.to_thread(cluster.wait_idle)


async def test_models_whose_tokens_see_those_behind_them(cluster: Cluster, encoders: Encoders) -> None:
    """Which our own engine does not have; the gateway puts what the tokenizer says around a text."""
    texts = ["hello world", "The loom weaves requests of hot and cold models onto the same devices."]
    asked = [encoders.ids(text) for text in texts]
    async with openai_client(cluster) as client:
        answer = await client.embeddings.create(model="encoder", input=texts)
    found = torch.tensor([one.embedding for one in answer.data])
    wanted = torch.nn.functional.normalize(pooling_models.mean_states(encoders.plain, asked))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert answer.usage.prompt_tokens == sum(map(len, asked))
    query, *documents = "hello loom", *texts
    scores = test_scores.scores_of(await test_scores.reranked(cluster, documents, model="cross", query=query))
    pairs = [[*encoders.ids(query), END, *encoders.ids(document)[1:]] for document in documents]
    assert scores == pytest.approx(torch.sigmoid(score_model.expected(encoders.cross, pairs))[:, 0].tolist(), abs=1e-3)
    await asyncio.to_thread(cluster.wait_idle)


async def test_nodes_of_both_kinds_embed_for_one_queue(
    smol: Path, vllm_python: Path, redis_program: Path, model_file: Path, tmp_path: Path
) -> None:
    """Sixty texts, of which six run at a time: each engine has a part, and nobody can tell which."""
    del redis_program
    both = Cluster.create(
        tmp_path,
        models=[{"name": "texts", "source": str(smol), "max_model_len": 512, "task": "embed"}],
        nodes=[{"name": "node-0", "engine": "vllm", "vllm": {"python": str(vllm_python)}}, {"name": "node-1"}],
        engine={"max_num_seqs": 3, "kv_cache_bytes": 128 << 20, "step_timeout_s": 200},
    )
    texts = [f"Number {number}: {test_embeddings.TEXTS[number % 3] * 4}" for number in range(60)]
    try:
        done = await asyncio.to_thread(both.treadle, "up", "--wait-s", str(UP_S))
        assert done.returncode == 0, done.stderr + both.log_tails()
        async with openai_client(both) as client:
            found = await test_embeddings.embedded(client, texts)
        steps = {name: both.metric(name, "treadle_node_steps_total") for name in both.nodes}
        await asyncio.to_thread(both.wait_idle)
    finally:
        await asyncio.to_thread(both.down)
    similar = (found * test_embeddings.by_reference(texts, model_file)).sum(dim=1)
    assert float(similar.min()) > test_embeddings.ROUNDED
    assert min(steps.values()) > 0, f"both had a part: {steps}"
