"""A tiny BERT that embeds and one that scores beside chats, each with its own tokenizer, on a node of processors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from openai import AsyncOpenAI, BadRequestError
from tokenizers import Tokenizer
from torch.nn.functional import normalize

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client
from tests.gpu_node.encoder_model import LONGEST, label_logits, means, save_encoder, scores
from tests.gpu_node.gguf_encoders import write_encoder_gguf
from tests.gpu_node.nomic_model import save_nomic
from tests.gpu_node.turned_encoders import as_gte_writes_it, save_turned

ROUNDED = 0.999
"""Least cosine of the CPU device's bfloat16 beside float32."""
ROUNDED_TURNED = 0.998
"""The same of longer texts and more layers."""
CLOSE = 0.05
"""Of scores, likewise."""
TEXTS = (
    "The loom weaves requests of hot and cold models onto the same devices.",
    "loom",
    "Naïve café, DON'T stop at 1234567890!",
    "日本語のテキスト 中文文本 🧵",
    "hello world, " * 14,
)


class Bert:
    """A model's directory, what `transformers` has of it, and the library's tokenizer."""

    def __init__(self, path: Path, *, is_classifier: bool, **changes: Any) -> None:
        self.model: Any = save_encoder("bert", path, is_classifier=is_classifier, **changes)
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.path = path


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return Bert(tmp_path_factory.mktemp("embedder"), is_classifier=False)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return Bert(tmp_path_factory.mktemp("judge"), is_classifier=True)


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Bert:
    return Bert(tmp_path_factory.mktemp("moods"), is_classifier=True, num_labels=3)


@pytest.fixture(scope="module")
def nomic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A file, and what `transformers` has of it."""
    folder = tmp_path_factory.mktemp("nomic")
    return folder / "m.gguf", save_nomic(folder)


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A ModernBERT that scores by the mean of its states, and what `transformers` has of it."""
    folder = tmp_path_factory.mktemp("modern")
    return folder, save_turned("modernbert", folder, is_classifier=True, classifier_pooling="mean")


@pytest.fixture(scope="module")
def gte(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """As its own files have it."""
    folder = tmp_path_factory.mktemp("gte")
    model = save_turned("gte", folder)
    as_gte_writes_it(folder)
    return folder, model


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    embedder: Bert,
    judge: Bert,
    moods: Bert,
    nomic: tuple[Path, Any],
    modern: tuple[Path, Any],
    gte: tuple[Path, Any],
    model_file: Path,
) -> Iterator[Cluster]:
    """Models that take turns on a node."""
    del model_file  # it is there
    file = write_encoder_gguf(tmp_path_factory.mktemp("file") / "texts.gguf", embedder.path)
    chat = {"name": "chat", "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512}
    made = Cluster.create(
        tmp_path_factory.mktemp("encoders"),
        models=[
            {"name": "texts", "source": str(embedder.path), "task": "embed"},
            {"name": "texts-gguf", "source": str(file), "task": "embed"},
            {"name": "nomic", "source": str(nomic[0]), "task": "embed"},
            {"name": "modern", "source": str(modern[0]), "task": "embed"},
            {"name": "modern-judge", "source": str(modern[0]), "task": "score"},
            {"name": "gte", "source": str(gte[0]), "task": "embed"},
            {"name": "judge", "source": str(judge.path), "task": "score"},
            {"name": "moods", "source": str(moods.path), "task": "classify"},
            chat,
        ],
        nodes=[{"name": "node-0"}],
        engine={"max_num_seqs": 8, "kv_cache_bytes": 64 << 20},
    )
    with made.running():
        yield made


async def embedded(client: AsyncOpenAI, texts: Sequence[str], model: str = "texts") -> torch.Tensor:
    answer = await client.embeddings.create(model=model, input=list(texts))
    return torch.tensor([one.embedding for one in answer.data])


async def test_embeddings_are_those_of_transformers_beside_a_chat(cluster: Cluster, embedder: Bert) -> None:
    async with openai_client(cluster) as client:
        found, (chat,) = await asyncio.gather(embedded(client, TEXTS), complete(client, [Ask("chat", PROMPTS[0], 20)]))
        alone = torch.cat([await embedded(client, [text]) for text in TEXTS])
    assert chat.num_tokens == 20
    assert torch.equal(found, alone)
    expected = normalize(means(embedder.model, [embedder.tokenizer.encode(text).ids for text in TEXTS]))
    assert float((found * expected).sum(dim=1).min()) > ROUNDED


async def test_a_gguf_file_gives_the_numbers_of_its_directory(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        assert torch.equal(await embedded(client, TEXTS, "texts-gguf"), await embedded(client, TEXTS))


async def test_nomics_are_those_of_transformers(cluster: Cluster, nomic: tuple[Path, Any]) -> None:
    path, model = nomic
    tokenizer = Tokenizer.from_file(str(path.parent / "tokenizer.json"))
    async with openai_client(cluster) as client:
        found = await embedded(client, TEXTS, "nomic")
    expected = normalize(means(model, [tokenizer.encode(text).ids for text in TEXTS]))
    assert float((found * expected).sum(dim=1).min()) > ROUNDED


@pytest.mark.parametrize("name", ["modern", "gte"])
async def test_with_rotary_positions(cluster: Cluster, name: str, request: pytest.FixtureRequest) -> None:
    path, model = request.getfixturevalue(name)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    async with openai_client(cluster) as client:
        found = await embedded(client, TEXTS, name)
    expected = normalize(means(model, [tokenizer.encode(text).ids for text in TEXTS]))
    assert float((found * expected).sum(dim=1).min()) > ROUNDED_TURNED


async def test_a_modern_bert_judges_pairs(cluster: Cluster, modern: tuple[Path, Any]) -> None:
    path, model = modern
    query, documents = "which loom weaves?", list(TEXTS[:3])
    body = {"model": "modern-judge", "query": query, "documents": documents}
    async with aiohttp.ClientSession(cluster.url) as http, http.post("/v1/rerank", json=body) as response:
        assert response.status == 200
        answer = await response.json()
    found = {one["index"]: one["relevance_score"] for one in answer["results"]}
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    pairs = [tokenizer.encode(query, document).ids for document in documents]
    expected = label_logits(model, pairs).sigmoid().flatten().tolist()
    assert [found[number] for number in range(3)] == pytest.approx(expected, abs=CLOSE)


async def test_a_text_that_is_too_long_is_refused(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        assert len(await embedded(client, ["loom " * (LONGEST - 2)])) == 1
        with pytest.raises(BadRequestError) as refused:
            await embedded(client, ["short", "loom " * (LONGEST - 1)])
    error: Any = refused.value.body
    assert (error["type"], error["code"], error["param"]) == (
        "invalid_request_error",
        "context_length_exceeded",
        "input",
    )
    assert f"{LONGEST + 1} tokens" in error["message"]


async def test_scores_are_those_of_transformers(cluster: Cluster, judge: Bert) -> None:
    query, documents = "which loom weaves?", list(TEXTS[:4])
    body = {"model": "judge", "query": query, "documents": documents}
    async with aiohttp.ClientSession(cluster.url) as http, http.post("/v1/rerank", json=body) as response:
        assert response.status == 200
        answer = await response.json()
    found = {one["index"]: one["relevance_score"] for one in answer["results"]}
    pairs = [judge.tokenizer.encode(query, document).ids for document in documents]
    expected = scores(judge.model, pairs).sigmoid().flatten().tolist()
    assert [found[number] for number in range(4)] == pytest.approx(expected, abs=CLOSE)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, pairs))


async def test_labels_are_those_of_transformers(cluster: Cluster, moods: Bert) -> None:
    body = {"model": "moods", "input": list(TEXTS[:4])}
    async with aiohttp.ClientSession(cluster.url) as http, http.post("/v1/classify", json=body) as response:
        assert response.status == 200
        answer = await response.json()
    asked = [moods.tokenizer.encode(text).ids for text in TEXTS[:4]]
    expected = label_logits(moods.model, asked).softmax(dim=1)
    assert [one["label"] for one in answer["data"]] == [f"LABEL_{row.argmax()}" for row in expected]
    for one, row in zip(answer["data"], expected.tolist(), strict=True):
        assert one["probs"] == pytest.approx(row, abs=CLOSE)


async def test_it_writes_no_text(cluster: Cluster) -> None:
    async with openai_client(cluster) as client:
        with pytest.raises(BadRequestError) as refused:
            await client.chat.completions.create(model="texts", messages=[{"role": "user", "content": "loom"}])
    error: Any = refused.value.body
    assert error["code"] == "model_not_supported"
