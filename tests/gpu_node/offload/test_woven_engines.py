"""Requests of one engine whose attention runs on another: each gets the tokens that it gets without."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from gpu_node.engine.engine import Engine
from shared.config.engine import EngineOptions, ModelSpec
from shared.messages.payload import Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.client import Client
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.offload.waiting import wait_until
from tests.gpu_node.offload.weaving import LINK, MODEL, Weaving

MAX_MODEL_LEN = 48
NUM_REQUESTS = 12
SENDER = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, step_tokens=32, offload="on")
RECEIVER = EngineOptions(kv_cache_bytes=16 << 20, block_size=16, offload="on")


def requests() -> list[Payload]:
    numbers = random.Random(5)
    payloads = []
    for number in range(NUM_REQUESTS):
        prompt = [numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, 22))]
        sampling = Sampling(max_tokens=numbers.randint(5, 24), temperature=number % 3 * 0.5, seed=number, ignore_eos=True)
        payloads.append(Payload(str(number), 0, "g", MODEL, prompt, sampling))
    return payloads


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name=MODEL, source=str(path), max_model_len=MAX_MODEL_LEN)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model whose keys and values are so large that 170 tokens fill the sender's memory."""
    path = tmp_path_factory.mktemp("large")
    save("llama", path, num_hidden_layers=6, num_key_value_heads=4, head_dim=64)
    return path


@pytest.mark.parametrize("form", ["on", "ahead"])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_tokens_are_those_of_home(stack: ExitStack, tmp_path: Path, path: Path, ratio: float, form: str) -> None:
    sender = replace(SENDER, offload=form)
    both = Weaving(stack, tmp_path, spec(path), sender=sender, receiver=RECEIVER)
    alone = tiny.run(both.hot, requests())
    assert both.lend(3, ratio)
    assert tiny.run(both.hot, requests()) == alone
    assert (both.num_served > 0) == (ratio > 0)
    both.hot.check()
