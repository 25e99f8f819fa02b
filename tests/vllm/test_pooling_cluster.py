"""A cluster whose only node has vLLM: embeddings and scores through the gateway, beside text, of models that change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, processors

from tests.e2e import test_embeddings, test_scores
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client
from tests.gateway.hf_tiny import size_of, unigram, write_directory
from tests.vllm import pooling_models

UP_S = 400
CLOSE = 0.01
"""Of two engines that both compute in float32, of weights that one of them has rounded."""


def write_encoder(folder: Path) -> Any:
    """A small XLM-RoBERTa with a vocabulary of SentencePiece, whose texts are between two control tokens."""
    ends = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    holder = Tokenizer(models.BPE())
    holder.post_processor = ends
    spec = json.loads(holder.to_str())["post_processor"]
    write_directory(folder, "unigram", tokenizer={"post_processor": spec})
    model = pooling_models.write_encoder(folder, size_of(unigram()))
    pooling_models.write_pooling(folder, "mean_tokens")
    return model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("models") / "encoder"
    return folder, write_encoder(folder)


@pytest.fixture(scope="module")
def cluster(
    smol: Path,
    encoder: tuple[Path, Any],
    vllm_python: Path,
    redis_program: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """Up while the tests of this file run; of its four models, two stay at a time."""
    del redis_program
    model = {"source": str(smol), "max_model_len": 512}
    vllm = {"python": str(vllm_python), "args": ["--dtype", "float32"]}
    one = Cluster.create(
        tmp_path_factory.mktemp("cluster"),
        models=[
            model | {"name": "chat"},
            model | {"name": "texts", "task": "embed"},
            model | {"name": "judge", "task": "score", "score": test_scores.SCORE},
            {"name": "encoder", "source": str(encoder[0]), "max_model_len": 512, "task": "embed"},
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


async def test_a_model_whose_tokens_see_those_behind_them(cluster: Cluster, encoder: tuple[Path, Any]) -> None:
    """Which our own engine does not have; the gateway puts what its tokenizer says around a text."""
    folder, model = encoder
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = ["hello world", "The loom weaves requests of hot and cold models onto the same devices."]
    asked = [tokenizer.encode(text).ids for text in texts]
    assert all((ids[0], ids[-1]) == (1, 2) for ids in asked)
    async with openai_client(cluster) as client:
        answer = await client.embeddings.create(model="encoder", input=texts)
    found = torch.tensor([one.embedding for one in answer.data])
    wanted = torch.nn.functional.normalize(pooling_models.mean_states(model, asked))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert answer.usage.prompt_tokens == sum(map(len, asked))
    await asyncio.to_thread(cluster.wait_idle)
