"""Engines that guess structured output beside engines that draw a token a step: the same tokens, in fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from gpu_node.grammars.compiler import GrammarCompiler
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.speculation import SpeculationOptions
from shared.messages.requests.payload import Output, Payload
from tests.gpu_node import tiny
from tests.gpu_node.pieces import AGE, CALL, CHOICE, DATE, PEOPLE, PERSON, THOUGHT, compiled
from tests.gpu_node.steady_devices import SteadyCpu, SteadyGroup, SteadyReference
from tests.gpu_node.workload import prompt, request

KIB = 1 << 10

KINDS: list[dict[str, Any]] = [
    {"constraint": PERSON, "temperature": 0.0},
    {"constraint": PERSON, "temperature": 1.0, "num_logprobs": 2},
    {"constraint": PEOPLE, "temperature": 0.0, "num_logprobs": 0},
    {"constraint": PEOPLE, "temperature": 0.8, "num_choices": 3},
    {"constraint": DATE, "temperature": 1.3},
    {"constraint": DATE, "temperature": 0.0, "frequency_penalty": 0.6, "repetition_penalty": 1.2},
    {"constraint": CHOICE, "temperature": 1.0, "num_choices": 1, "num_candidates": 3},
    {"constraint": CALL, "temperature": 0.7, "presence_penalty": 0.9},
    {"constraint": THOUGHT, "temperature": 0.9},
    {"constraint": PERSON, "temperature": 0.9, "ignore_eos": True, "logit_bias": [(AGE, 9.0)]},
    {"constraint": PERSON, "temperature": 1.0, "stop_token_ids": [AGE]},
    {"temperature": 0.9},
]

Make = Callable[[EngineOptions], Executor]
Told = dict[tuple[str, int], tuple[list[int], list[Any], str]]
"""Tokens, logprobs and the reason of the end, by request and choice."""


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrammarCompiler]:
    compiler = compiled(tmp_path_factory.mktemp("pieces"))
    yield compiler
    compiler.close()


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def cpu(options: EngineOptions) -> Executor:
    return SteadyCpu(options, num_threads=2)


def engine_of(
    make: Make,
    path: Path,
    grammars: GrammarCompiler,
    resources: ExitStack,
    speculation: SpeculationOptions | None = None,
    **given: Any,
) -> Engine:
    chosen: dict[str, Any] = {"kv_cache_bytes": 1 << 20, "block_size": 4, "max_num_seqs": 40} | given
    options = EngineOptions(**chosen)
    executor = make(options)
    if isinstance(executor, SteadyCpu | SteadyGroup):
        resources.enter_context(closing(executor))
    engine = Engine(executor, options, grammars=grammars)
    engine.load_model(ModelSpec("tiny", str(path), max_model_len=tiny.CONTEXT, speculation=speculation))
    return engine


def requests(num_rounds: int = 2) -> list[Payload]:
    """Of each kind, some that end in the midst of what their language leaves."""
    return [
        request(
            f"{number}-{again}",
            prompt(number + 50 * again, 4 + number),
            60 if again else 9 + number,
            seed=number,
            **kind,
        )
        for again in range(num_rounds)
        for number, kind in enumerate(KINDS)
    ]


def run(engine: Engine, payloads: list[Payload]) -> tuple[Told, int]:
    """What comes of each, and in how many steps."""
    told: Told = {}
    num_steps = 0
    for payload in payloads:
        assert engine.add(payload) == []
    while engine.has_work:
        chunks = engine.step(0.0)
        engine.check()
        num_steps += bool(chunks)
        for chunk in chunks:
            assert not chunk.error
            tokens, logprobs, _ = told.get((chunk.request_id, chunk.choice), ([], [], ""))
            if not payload_is_ranked(payloads, chunk.request_id):
                assert chunk.start == len(tokens), "no token is lost or doubled"
            whole = [*tokens, *chunk.token_ids], [*logprobs, *chunk.logprobs], chunk.finish_reason
            told[chunk.request_id, chunk.choice] = whole
    return told, num_steps


def payload_is_ranked(payloads: list[Payload], request_id: str) -> bool:
    return next(one.sampling.is_ranked for one in payloads if one.request_id == request_id)


def tokens_of(told: Told) -> dict[tuple[str, int], tuple[list[int], int, str]]:
    return {name: (tokens, len(logprobs), reason) for name, (tokens, logprobs, reason) in told.items()}


@pytest.mark.parametrize("make", [SteadyReference, cpu])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("speculation", [None, SpeculationOptions("ngram", 4)], ids=["alone", "and copied"])
def test_the_same_tokens_come_in_fewer_steps(
    make: Make,
    is_async: bool,
    speculation: SpeculationOptions | None,
    tiny_path: Path,
    grammars: GrammarCompiler,
    resources: ExitStack,
) -> None:
    given: dict[str, Any] = {"async_scheduling": is_async}
    plain = engine_of(make, tiny_path, grammars, resources, structured_guesses=False, **given)
    expected, num_plain = run(plain, requests())
    assert plain.counts.num_draft_tokens == 0
    engine = engine_of(make, tiny_path, grammars, resources, speculation, **given)
    found, num_steps = run(engine, requests())
    if make is cpu:
        assert found == expected, "log probabilities too, to the bit"
    assert tokens_of(found) == tokens_of(expected)
    assert num_steps < num_plain
    assert engine.counts.num_structured_accepted > 100
    assert engine.counts.num_accepted_tokens >= engine.counts.num_structured_accepted
    one_again = [replace(requests()[len(KINDS)], request_id="again")]
    assert run(engine, one_again)[1] < 0.5 * run(plain, one_again)[1], "what it is used to draw there is known by now"


def test_what_is_known_of_a_language_is_known_in_its_partition_alone(
    tiny_path: Path, grammars: GrammarCompiler, resources: ExitStack
) -> None:
    engine = engine_of(cpu, tiny_path, grammars, resources, async_scheduling=False)

    def num_steps(name: str, partition: str) -> int:
        one = request(name, prompt(1, 4), 60, constraint=PERSON, temperature=0.0)
        return run(engine, [replace(one, partition=partition)])[1]

    num_steps("1", "")
    known = num_steps("2", "")
    new, other = num_steps("3", "a"), num_steps("4", "b")
    assert new == other > known, "how often guesses hold is known of the model, and of no output"
    assert [num_steps("5", "a"), num_steps("6", "")] == [known, known]


@pytest.mark.parametrize(
    "options",
    [
        {"step_tokens": 16, "max_num_seqs": 16},
        {"kv_cache_bytes": 28 * KIB, "admission": "greedy", "preemption": "recompute"},
        {"kv_cache_bytes": 28 * KIB, "admission": "greedy", "preemption": "swap", "host_kv_bytes": 1 << 20},
        {"chunked_prefill": False},
        {"block_size": 1},
    ],
    ids=str,
)
def test_however_steps_are_planned(
    options: dict[str, Any], tiny_path: Path, grammars: GrammarCompiler, resources: ExitStack
) -> None:
    expected, _ = run(engine_of(cpu, tiny_path, grammars, resources, structured_guesses=False), requests())
    engine = engine_of(cpu, tiny_path, grammars, resources, SpeculationOptions("ngram", 3), **options)
    assert run(engine, requests())[0] == expected
    assert engine.counts.num_structured_accepted > 20
    assert (engine.num_preemptions > 0) == ("kv_cache_bytes" in options)


def test_devices_that_share_a_model_check_them_together(
    tiny_path: Path, grammars: GrammarCompiler, resources: ExitStack
) -> None:
    plain = engine_of(SteadyReference, tiny_path, grammars, resources, structured_guesses=False)
    engine = engine_of(SteadyGroup, tiny_path, grammars, resources)
    assert tokens_of(run(engine, requests())[0]) == tokens_of(run(plain, requests())[0])
    assert engine.counts.num_structured_accepted > 0


@pytest.mark.parametrize("max_tokens", range(1, 24))
def test_an_output_may_end_anywhere_in_a_run(
    max_tokens: int, tiny_path: Path, grammars: GrammarCompiler, resources: ExitStack
) -> None:
    engine = engine_of(SteadyReference, tiny_path, grammars, resources)
    asked = request("a", prompt(3, 7), 60, constraint=PERSON, temperature=1.0, seed=4)
    ((whole, _, _),) = run(engine, [asked])[0].values()
    short = replace(asked, request_id="b", sampling=replace(asked.sampling, max_tokens=max_tokens))
    ((tokens, _, reason),) = run(engine, [short])[0].values()
    assert tokens == whole[:max_tokens]
    assert reason == ("length" if max_tokens < len(whole) else "stop")


@pytest.mark.parametrize("is_moved", [True, False])
def test_who_leaves_in_the_midst_of_a_run_goes_on(
    is_moved: bool, tiny_path: Path, grammars: GrammarCompiler, resources: ExitStack
) -> None:
    """With its KV here, or as another attempt on another node, which knows nothing of the language's habits."""
    asked = request("a", prompt(3, 7), 60, constraint=PEOPLE, temperature=1.0, seed=4, num_logprobs=1)
    ((whole, logprobs, reason),) = run(
        engine_of(cpu, tiny_path, grammars, resources, structured_guesses=False), [asked]
    )[0].values()
    engine = engine_of(cpu, tiny_path, grammars, resources, evicted_kv_bytes=1 << 20)
    run(engine, requests(1))
    before: list[Any] = []
    engine.add(asked)
    while len(before) < 8:
        before += [chunk for chunk in engine.step(0.0) if chunk.token_ids]
    chunks, kept = engine.evict(["a"])
    before += [chunk for chunk in chunks if chunk.token_ids]
    assert kept[0].kv_tokens > 0
    tokens = [token for chunk in before for token in chunk.token_ids]
    assert any(len(chunk.token_ids) > 1 for chunk in before), "it left behind guesses"
    if is_moved:
        engine = engine_of(cpu, tiny_path, grammars, resources)
        rest = Payload("a", 1, "g", "tiny", asked.prompt_token_ids, asked.sampling, [Output(tokens)])
        assert engine.add(rest) == []
    else:
        assert engine.add(asked) == []
    after = [chunk for chunks in tiny.steps(engine) for chunk in chunks]
    assert tokens + [token for chunk in after for token in chunk.token_ids] == whole
    assert [one for chunk in [*before, *after] for one in chunk.logprobs] == logprobs
    assert after[-1].finish_reason == reason
