"""Models that embed and score in vLLM: their rows are those of our own engine, and of `transformers`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from gpu_node.engine.process.protocol import (
    AbortRequests,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    StepReport,
    TakeOut,
    TakenOut,
)
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engine import EngineOptions
from shared.messages.payload import Payload
from shared.messages.requests import Chunk
from tests.gpu_node import embedding_model, score_model, tiny
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm import pooling_models
from tests.vllm.nodes import chunks_until_end, ready, request, tokens_of

CLOSE = {"rtol": 1e-3, "atol": 1e-3}
STEP_TOKENS = 64


@dataclass(frozen=True)
class Pooled:
    folder: Path
    texts: Any
    ranks: Any

    def config(self, python: Path) -> Path:
        """One node, where four models stay."""
        sources = {"texts": "texts", "judge": "texts", "ranks": "ranks", "mean": "mean", "chat": "texts"}
        sources |= {"labels": "labels", "odd": "odd"}
        tasks = {"texts": "embed", "judge": "score", "ranks": "score", "mean": "embed", "labels": "score"}
        tasks |= {"odd": "embed"}
        models = [
            {"name": name, "source": str(self.folder / source), "max_model_len": 512, "task": tasks.get(name, "generate")}
            for name, source in sources.items()
        ]
        vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
        node = {"name": "node-0", "engine": "vllm", "vllm": vllm}
        options = {"kv_cache_bytes": 16 << 20, "max_num_seqs": 8, "step_tokens": STEP_TOKENS, "host_models": 2}
        path = self.folder / "treadle.yaml"
        path.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": options}))
        return path


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    folder = tmp_path_factory.mktemp("pooled")
    texts = pooling_models.write_language_model(folder / "texts")
    pooling_models.write_language_model(folder / "mean")
    pooling_models.write_pooling(folder / "mean", "mean_tokens")
    pooling_models.write_language_model(folder / "odd")
    pooling_models.write_pooling(folder / "odd", "max_tokens")
    ranks = pooling_models.write_classifier(folder / "ranks")
    pooling_models.write_classifier(folder / "labels", num_labels=3)
    return Pooled(folder, texts, ranks)


@pytest.fixture(scope="module")
def running(pooled: Pooled, vllm_python: Path) -> Iterator[Agent]:
    with ready(pooled.config(vllm_python), vllm_python) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    running.send(Reset())
    running.next()
    return running


def asked(model: str, name: str, text: Sequence[int], attempt: int = 0) -> Payload:
    return replace(request(name, text, 1, attempt=attempt, is_embedding=True), model=model)


def texts(num_texts: int, longest: int = 200) -> list[list[int]]:
    """Token ids, many of more tokens than a step has."""
    numbers = random.Random(7)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_texts)]


def rows(agent: Agent, model: str, prompts: Sequence[Sequence[int]], prefix: str = "") -> torch.Tensor:
    """float32 [texts, numbers], all asked for together."""
    payloads = [asked(model, f"{prefix}{number}", prompt) for number, prompt in enumerate(prompts)]
    agent.send(*(RunAttempt(one) for one in payloads))
    found: dict[str, Chunk] = {}
    while found.keys() < {one.request_id for one in payloads}:
        event = agent.next()
        assert isinstance(event, StepReport)
        for chunk in event.chunks:
            assert (chunk.token_ids, chunk.finish_reason, chunk.is_last, chunk.error) == ([], "stop", True, "")
            found[chunk.request_id] = chunk
    return torch.from_numpy(np.stack([np.frombuffer(found[one.request_id].embedding, "<f4") for one in payloads]))


def test_embeddings_are_the_states_of_last_tokens(agent: Agent, pooled: Pooled) -> None:
    """In chunks, in one batch, and over cached prefixes, as in our engine."""
    loaded = agent.load("texts")
    assert isinstance(loaded, ModelLoaded), loaded
    common = [5 + number % 50 for number in range(260)]
    prompts = [*texts(12), common, [*common, 9]]
    wanted = embedding_model.expected(pooled.texts, prompts)
    print("diff", (rows(agent, "texts", prompts, "p") - wanted).abs().max(), wanted.abs().max())
    for number in range(2):
        torch.testing.assert_close(rows(agent, "texts", prompts, f"{number}."), wanted, **CLOSE)
    options = EngineOptions(kv_cache_bytes=8 << 20, block_size=4)
    ours = embedding_model.engine_of(ReferenceExecutor(options), pooled.folder / "texts")
    short = texts(6, 20)
    torch.testing.assert_close(rows(agent, "texts", short), embedding_model.embedded(ours, short), **CLOSE)


def test_scores_are_the_logits_of_no_and_yes(agent: Agent, pooled: Pooled) -> None:
    loaded = agent.load("judge")
    assert isinstance(loaded, ModelLoaded), loaded
    prompts = texts(12)
    torch.testing.assert_close(rows(agent, "judge", prompts), score_model.expected(pooled.texts, prompts), **CLOSE)


def test_scores_of_a_classifier_are_its_logit(agent: Agent, pooled: Pooled) -> None:
    loaded = agent.load("ranks")
    assert isinstance(loaded, ModelLoaded), loaded
    prompts = texts(12)
    torch.testing.assert_close(rows(agent, "ranks", prompts), score_model.expected(pooled.ranks, prompts), **CLOSE)


def test_all_tokens_are_pooled_where_the_files_say_so(agent: Agent, pooled: Pooled) -> None:
    loaded = agent.load("mean")
    assert isinstance(loaded, ModelLoaded), loaded
    prompts = texts(12)
    torch.testing.assert_close(rows(agent, "mean", prompts), pooling_models.mean_states(pooled.texts, prompts), **CLOSE)
