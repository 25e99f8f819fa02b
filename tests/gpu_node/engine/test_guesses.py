"""Engines with guessed tokens beside engines without: the same tokens, in fewer steps, whatever runs beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.executors.predicted.virtual import VirtualExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.speculation import SpeculationOptions
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.steady_devices import SteadyCpu, SteadyGroup, SteadyReference

NUM_TOKENS = 60
REPEATS: dict[str, Any] = {"logit_bias": [(7, 40.0), (11, 40.0)]}
"""Two tokens are likely above all, so that an output repeats itself."""

Make = Callable[[EngineOptions], Executor]
Outputs = dict[str, list[list[int]]]


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def cpu(options: EngineOptions) -> Executor:
    return SteadyCpu(options, num_threads=2)


def requests() -> list[Payload]:
    """Those that repeat themselves, at both temperatures, and one that does not."""
    return [
        tiny.request("greedy", [5, 6, 7], NUM_TOKENS, **REPEATS),
        tiny.request("drawn", [5, 6, 8], NUM_TOKENS, temperature=0.7, seed=3, num_logprobs=2, **REPEATS),
        tiny.request("penalised", [5, 6, 9], NUM_TOKENS, temperature=0.5, frequency_penalty=0.1, **REPEATS),
        tiny.request("other", [9, 4, 2], NUM_TOKENS, temperature=1.5),
    ]


def engine_of(
    make: Make, path: Path, resources: ExitStack, speculation: SpeculationOptions | None, **given: Any
) -> Engine:
    options = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, max_num_seqs=8, **given)
    executor = make(options)
    if isinstance(executor, SteadyCpu | SteadyGroup):
        resources.enter_context(closing(executor))
    engine = Engine(executor, options)
    engine.load_model(ModelSpec("tiny", str(path), max_model_len=tiny.CONTEXT, speculation=speculation))
    return engine


def run(engine: Engine, payloads: list[Payload]) -> tuple[dict[str, list[OutputChunk]], int]:
    """What each request is told, and in how many calls."""
    told: dict[str, list[OutputChunk]] = {payload.request_id: [] for payload in payloads}
    for payload in payloads:
        assert engine.add(payload) == []
    num_calls = 0
    for chunks in tiny.steps(engine):
        num_calls += 1
        for chunk in chunks:
            told[chunk.request_id].append(chunk)
    return told, num_calls


def whole(told: dict[str, list[OutputChunk]]) -> dict[str, tuple[list[int], list[Any], str]]:
    return {
        name: (
            [token for chunk in chunks for token in chunk.token_ids],
            [logprob for chunk in chunks for logprob in chunk.logprobs],
            chunks[-1].finish_reason,
        )
        for name, chunks in told.items()
    }


@pytest.mark.parametrize("make", [SteadyReference, cpu])
@pytest.mark.parametrize("is_async", [True, False])
def test_the_same_tokens_come_in_fewer_steps(make: Make, is_async: bool, tiny_path: Path, resources: ExitStack) -> None:
    plain = engine_of(make, tiny_path, resources, None, async_scheduling=is_async)
    expected, num_plain = run(plain, requests()[:2])
    engine = engine_of(make, tiny_path, resources, SpeculationOptions("ngram", 6), async_scheduling=is_async)
    found, num_calls = run(engine, requests()[:2])
    tokens, expected_tokens = whole(found), whole(expected)
    for name in tokens:
        assert tokens[name][0] == expected_tokens[name][0]
        assert tokens[name][2] == expected_tokens[name][2]
        assert len(tokens[name][1]) == len(expected_tokens[name][1])
    if make is cpu:
        assert tokens == expected_tokens, "log probabilities too, to the bit"
    assert num_calls < 0.8 * num_plain
    assert engine.counts.num_accepted_tokens > NUM_TOKENS / 2
    assert any(len(chunk.token_ids) > 1 for chunk in found["greedy"])


@pytest.mark.parametrize("make", [SteadyReference, cpu])
def test_penalties_and_requests_that_guess_nothing_beside(make: Make, tiny_path: Path, resources: ExitStack) -> None:
    expected, _ = run(engine_of(make, tiny_path, resources, None), requests())
    engine = engine_of(make, tiny_path, resources, SpeculationOptions("ngram", 6))
    found, _ = run(engine, requests())
    assert {name: each[0] for name, each in whole(found).items()} == {
        name: each[0] for name, each in whole(expected).items()
    }
    assert engine.counts.num_accepted_tokens > 0


def test_devices_that_share_a_model_check_guesses_together(tiny_path: Path, resources: ExitStack) -> None:
    expected, _ = run(engine_of(SteadyReference, tiny_path, resources, None), requests())
    engine = engine_of(SteadyGroup, tiny_path, resources, SpeculationOptions("ngram", 6))
    found, _ = run(engine, requests())
    assert engine.counts.num_accepted_tokens > 0
    assert {name: each[0] for name, each in whole(found).items()} == {
        name: each[0] for name, each in whole(expected).items()
    }


def test_predicted_devices_refuse(tiny_path: Path) -> None:
    spec = ModelSpec("tiny", str(tiny_path), max_model_len=64, speculation=SpeculationOptions("ngram"))
    with pytest.raises(ModelFileError, match="executor: cpu and reference alone"):
        VirtualExecutor("a100", EngineOptions()).load_model(spec)
