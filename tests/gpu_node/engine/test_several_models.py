"""One engine with several models: who stays, whose turn it is, and how they lend each other memory."""

from __future__ import annotations

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import looked_up
from gpu_node.engine.residents import EngineBusyError
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload, Sampling

BLOCKS_PER_PAGE = 16
COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0001)


def engine(max_models: int = 2, num_pages: int = 3, async_scheduling: bool = False) -> Engine:
    """Pages of 16 blocks of 16 tokens."""
    options = EngineOptions(
        max_models=max_models,
        kv_cache_bytes=num_pages * (2 << 20),
        max_num_seqs=16,
        step_tokens=1024,
        async_scheduling=async_scheduling,
    )
    return Engine(PredictedExecutor(COST, options, token_kv_bytes=8192, vocab_size=50), options)


def load(one: Engine, *names: str) -> None:
    for name in names:
        one.load_model(ModelSpec(name=name, source="none", max_model_len=64))


def on_device(one: Engine) -> set[str]:
    return {model for model, tier in one.tiers.items() if tier == "device"}


def request(request_id: str, model: str, num_prompt_tokens: int = 3, max_tokens: int = 2, first: int = 0) -> Payload:
    prompt = [(first + number) % 50 for number in range(num_prompt_tokens)]
    return Payload(request_id, 0, "g", model, prompt, Sampling(max_tokens=max_tokens))


def fill(one: Engine, model: str) -> None:
    """Eight requests of four blocks each, no two with a common prefix: two pages."""
    for number in range(8):
        assert one.add(request(f"{model}{number}", model, 61, max_tokens=2, first=number)) == []


def run(one: Engine) -> list[str]:
    """Step to the end; the requests in the order in which they got tokens."""
    order = []
    while one.has_work:
        order += [chunk.request_id for chunk in one.step(now=0.0)]
        one.check()
    return order


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_models_with_work_are_served_in_turn(async_scheduling: bool) -> None:
    one = engine(async_scheduling=async_scheduling)
    load(one, "a", "b")
    assert one.add(request("x", "a")) == one.add(request("y", "b", max_tokens=3)) == one.add(request("z", "a")) == []
    assert (one.stats().num_waiting, one.stats().num_running) == (3, 0)
    assert run(one) == ["x", "z", "y", "x", "z", "y", "y"]


def test_a_request_for_a_model_that_is_not_loaded_is_an_error() -> None:
    one = engine()
    load(one, "a", "b")
    (ended,) = one.add(request("x", "c"))
    assert ended.error == "model 'c' is not loaded here; loaded: 'a', 'b'"


def test_who_was_asked_for_longest_ago_goes_first() -> None:
    one = engine()
    load(one, "a", "b")
    first = one.load_model(ModelSpec(name="a", source="none", max_model_len=64))
    assert one.model is first
    load(one, "c")
    assert on_device(one) == {"a", "c"}
    assert one.model is not None
    assert one.model.name == "c"


def test_a_model_with_sequences_never_goes() -> None:
    one = engine()
    load(one, "a", "b")
    one.add(request("x", "a"))
    load(one, "c")
    assert on_device(one) == {"a", "c"}
    one.add(request("y", "c"))
    with pytest.raises(EngineBusyError, match="cannot load 'b': 'a', 'c' have sequences"):
        load(one, "b")
    assert on_device(one) == {"a", "c"}
    one.abort(["y"])
    load(one, "b")
    assert on_device(one) == {"a", "b"}
    assert run(one) == ["x", "x"]


def test_a_model_goes_while_a_step_of_an_aborted_request_is_in_flight() -> None:
    one = engine(max_models=1, async_scheduling=True)
    load(one, "a")
    one.add(request("x", "a"))
    assert one.step(0.0) == []
    one.abort(["x"])
    load(one, "b")
    one.add(request("y", "b"))
    assert run(one) == ["y", "y"]


def test_pages_of_an_idle_model_are_lent_and_come_back() -> None:
    one = engine()
    load(one, "b", "a")
    assert one.stats().num_free_blocks == 2 * BLOCKS_PER_PAGE  # one page is b's by right
    fill(one, "a")
    one.step(0.0)
    load(one, "b")
    assert one.stats().num_free_blocks == BLOCKS_PER_PAGE  # a holds two
    run(one)
    assert one.stats().num_free_blocks == 2 * BLOCKS_PER_PAGE
    fill(one, "b")
    one.step(0.0)
    load(one, "a")
    assert one.stats().num_free_blocks == BLOCKS_PER_PAGE
    fill(one, "a")  # half of it fits beside b's; the rest waits, and gets the page back when b is done
    order = run(one)
    assert [order.count(f"a{number}") for number in range(8)] == [2] * 8
    assert one.stats().num_free_blocks == 2 * BLOCKS_PER_PAGE


def test_a_model_that_finds_no_room_is_not_loaded() -> None:
    one = engine(max_models=3, num_pages=3)
    load(one, "a")
    fill(one, "a")
    for number in range(8, 12):
        one.add(request(f"a{number}", "a", 61, first=number))
    one.step(0.0)  # a holds all pages
    with pytest.raises(EngineBusyError, match="cannot load 'b': 'a' has sequences"):
        load(one, "b")
    run(one)
    load(one, "b")
    assert "a" in on_device(one)


def test_counts_outlive_the_models_that_they_are_of() -> None:
    one = engine(max_models=1)
    load(one, "a")
    one.add(request("x", "a", num_prompt_tokens=40))
    run(one)
    one.add(request("y", "a", num_prompt_tokens=40))
    run(one)
    found = looked_up(80, 32, is_prompt=True)
    assert one.counts == found, "two full blocks"
    load(one, "b")
    one.add(request("z", "b"))
    run(one)
    assert one.stats().counts == found + looked_up(3, 0, is_prompt=True)
