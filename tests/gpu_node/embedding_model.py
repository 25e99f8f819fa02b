"""Texts through an engine whose model embeds, and what `transformers` computes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny

OPTIONS: dict[str, Any] = {"kv_cache_bytes": 2 << 20, "block_size": 4}


def spec(path: Path, **options: Any) -> ModelSpec:
    """A tiny model that embeds."""
    fields: dict[str, Any] = {"max_model_len": tiny.CONTEXT, "task": "embed"} | options
    return ModelSpec(name="tiny", source=str(path), **fields)


def engine_of(executor: Executor, path: Path, **options: Any) -> Engine:
    """An engine with the model of ``path``, which embeds."""
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(spec(path))
    return engine


def request(name: str, prompt: Sequence[int], **sampling: Any) -> Payload:
    """For the embedding of a text."""
    return tiny.request(name, prompt, 1, is_embedding=True, **sampling)


def texts(num_texts: int, longest: int = 24) -> list[list[int]]:
    """Token ids of random texts."""
    numbers = random.Random(5)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_texts)]


def embeddings(engine: Engine, payloads: Sequence[Payload]) -> torch.Tensor:
    """float32 [requests, hidden size], all asked for together; each request ends with its only chunk."""
    for payload in payloads:
        assert engine.add(payload) == []
    chunks = [chunk for told in tiny.steps(engine) for chunk in told]
    assert sorted(chunk.request_id for chunk in chunks) == sorted(payload.request_id for payload in payloads)
    assert all(chunk.is_last and chunk.finish_reason == "stop" and not chunk.token_ids for chunk in chunks)
    by_request = {chunk.request_id: np.frombuffer(chunk.embedding, dtype="<f4") for chunk in chunks}
    return torch.from_numpy(np.stack([by_request[payload.request_id] for payload in payloads]))


def embedded(engine: Engine, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """Likewise, of texts."""
    return embeddings(engine, [request(str(number), text) for number, text in enumerate(asked)])


def expected(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """The last token's hidden state behind the last norm, by `transformers`."""
    with torch.inference_mode():
        states = [model.base_model(torch.tensor([list(text)])).last_hidden_state[0, -1] for text in asked]
    return torch.stack(states)


def as_attempt(payload: Payload, attempt: int) -> Payload:
    """Another attempt of the same."""
    return replace(payload, attempt=attempt)
