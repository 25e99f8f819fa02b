"""Requests of one engine whose attention runs on another: each gets the tokens that it gets without."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from gpu_node.engine.requests.chunk import OutputChunk
from shared.config.engine import EngineOptions, ModelSpec
from shared.messages.payload import Output, Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save
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
        sampling = Sampling(
            max_tokens=numbers.randint(5, 24), temperature=number % 3 * 0.5, seed=number, ignore_eos=True
        )
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
def test_tokens_are_those_of_home(
    stack: ExitStack, tmp_path: Path, path: Path, ratio: float, form: Literal["on", "ahead"]
) -> None:
    sender = replace(SENDER, offload=form)
    both = Weaving(stack, tmp_path, spec(path), sender=sender, receiver=RECEIVER)
    alone = tiny.run(both.hot, requests())
    assert both.lend(3, ratio)
    assert tiny.run(both.hot, requests()) == alone
    assert (both.num_served > 0) == (ratio > 0)
    both.hot.check()


@pytest.mark.parametrize("seed", range(4))
def test_pages_that_are_wanted_back_call_requests_home_at_any_step(
    stack: ExitStack, tmp_path: Path, path: Path, seed: int
) -> None:
    numbers = random.Random(seed)
    both = Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=RECEIVER)
    alone = tiny.run(both.hot, requests())
    granted = both.lend(3, 0.7)
    num_wanted = 0

    def happen(step: int) -> None:
        nonlocal num_wanted
        if step % 7 == 5:
            number = numbers.randint(1, 3)
            num_wanted += number
            both.want_back(number)
        elif step % 7 == 6:
            granted.extend(both.lend(numbers.randint(1, 3), 0.7))

    for _ in range(3):
        assert both.run(requests(), happen) == alone
    both.want_back(len(granted))
    both.take_news()
    assert sorted(both.returned) == sorted(granted), "every page comes back"
    assert both.num_served > 0
    assert both.num_lost == 0


def test_requests_that_come_with_images_go_over_and_no_token_of_a_prompt_is_computed_again(
    stack: ExitStack, tmp_path: Path, path: Path
) -> None:
    both = Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=RECEIVER)
    alone = tiny.run(both.hot, requests())
    outputs: dict[str, list[int]] = {payload.request_id: [] for payload in requests()}
    images: dict[str, bytes] = {}
    num_kv_tokens = 0
    for payload in requests():
        assert both.hot.add(payload) == []
        chunks: list[OutputChunk] = []
        while not chunks:
            chunks = both.hot.step(now=0.0)
        last, kept = both.hot.evict([payload.request_id])
        outputs[payload.request_id] += [token for chunk in (*chunks, *last) for token in chunk.token_ids]
        num_kv_tokens += sum(one.kv_tokens for one in kept)
        images |= {one.request_id: one.data for one in both.hot.hand_over([payload.request_id])}
    assert both.lend(3, 0.5)
    before = both.hot.counts
    for payload in requests():
        assert both.hot.add(payload, images[payload.request_id]) == []
    while both.hot.has_work:
        for chunk in both.hot.step(now=0.0):
            outputs[chunk.request_id] += chunk.token_ids
    counts = both.hot.counts - before
    assert list(outputs.values()) == alone
    assert (counts.restored_tokens, counts.num_recomputed, counts.first_queried_tokens) == (num_kv_tokens, 0, 0)
    assert both.num_served > 0


@pytest.mark.parametrize("is_lost", [False, True])
def test_who_is_evicted_from_a_receiver_goes_on_where_it_was_unless_it_was_lost(
    stack: ExitStack, tmp_path: Path, path: Path, is_lost: bool
) -> None:
    both = Weaving(stack, tmp_path, spec(path), sender=replace(SENDER, kv_cache_bytes=2 << 20), receiver=RECEIVER)
    (payload,) = (one for one in requests() if one.request_id == "7")
    (alone,) = tiny.run(both.hot, [payload])
    both.lend(3, 1.0)
    assert both.hot.add(payload) == []
    tokens: list[int] = []
    for _ in range(8):
        tokens += [token for chunk in both.hot.step(now=0.0) for token in chunk.token_ids]
    assert both.num_served > 0
    if is_lost:
        both.cold.offload.close(LINK)
    chunks, kept = both.hot.evict(["7"])
    tokens += [token for chunk in chunks for token in chunk.token_ids]
    assert bool(sum(one.kv_tokens for one in kept)) != is_lost
    both.hot.check()
    assert both.hot.add(replace(payload, outputs=[Output(tokens)])) == []
    while both.hot.has_work:
        tokens += [token for chunk in both.hot.step(now=0.0) for token in chunk.token_ids]
    assert tokens == alone
    assert bool(both.hot.counts.restored_tokens) != is_lost


@pytest.mark.parametrize("seed", range(3))
def test_what_a_receiver_loses_is_computed_again(stack: ExitStack, tmp_path: Path, path: Path, seed: int) -> None:
    """It leaves at any step: its blocks are gone, and somebody else's content lies there."""
    numbers = random.Random(seed)
    both = Weaving(stack, tmp_path, spec(path), sender=SENDER, receiver=RECEIVER)
    alone = tiny.run(both.hot, requests())
    both.lend(3, 1.0)
    leaves_at = numbers.randint(2, 12)

    def happen(step: int) -> None:
        if step == leaves_at:
            both.cold.offload.close(LINK)
        elif step == leaves_at + 9:
            both.hot.offload.close(LINK)
            both.connect()
            both.lend(3, 0.5)

    assert both.run(requests(), happen) == alone
    assert both.num_lost > 0
    num_served = both.num_served
    assert both.run(requests(), lambda step: None) == alone
    assert both.num_served > num_served, "the next link is used"
