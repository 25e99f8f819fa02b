"""Requests for a model and for its adapters in one engine: each gets the tokens of its own merged model.

Whatever happens to its keys and values meanwhile: nothing that one adapter has computed is used for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import TierOptions
from tests.gpu_node import tiny
from tests.gpu_node.adapted_tiny import NAMES, Adapted, adapted_tiny, asked
from tests.gpu_node.workload import Answers, answers, prompt

MIB = 1 << 20


@pytest.fixture(scope="module")
def adapted(tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted_tiny(tiny_model, tiny_path, tmp_path_factory.mktemp("adapters"))


@pytest.fixture
def engines() -> Iterator[Any]:
    """Makes engines of either kind."""
    made: list[CpuExecutor] = []

    def make(spec: ModelSpec, kind: str = "reference", **given: Any) -> Engine:
        options = EngineOptions(**{"kv_cache_bytes": MIB, "block_size": 4, "max_num_seqs": 16} | given)
        executor: Any = ReferenceExecutor(options)
        if kind == "cpu":
            executor = CpuExecutor(options, num_threads=2)
            made.append(executor)
        engine = Engine(executor, options)
        engine.load_model(spec)
        return engine

    yield make
    for executor in made:
        executor.close()


def test_one_batch_gives_what_merged_models_give(adapted: Adapted, engines: Any) -> None:
    texts = [prompt(number, 5 + number) for number in range(9)]
    payloads = [asked(NAMES[number % 3], text, name=str(number)) for number, text in enumerate(texts)]
    outputs = tiny.run(engines(adapted.spec), payloads)
    expected = [tiny.greedy(adapted.merged[NAMES[number % 3]], text, 8)[0] for number, text in enumerate(texts)]
    assert outputs == expected
    assert (
        len({tuple(output) for output in tiny.run(engines(adapted.spec), [asked(name, texts[0]) for name in NAMES])})
        == 3
    )


@pytest.mark.parametrize("tiers", [False, True])
def test_a_prefix_is_found_by_its_own_adapter_alone(adapted: Adapted, engines: Any, *, tiers: bool) -> None:

    given: dict[str, Any] = {"tiers": TierOptions(host_bytes=MIB)} if tiers else {}
    engine = engines(adapted.spec, **given)
    text = prompt(3, 21)
    for number in range(2):
        for name in NAMES:
            before = engine.stats().counts.prefix_cached_tokens
            (output,) = tiny.run(engine, [asked(name, text, name=f"{name} {number}")])
            assert output == tiny.greedy(adapted.merged[name], text, 8)[0]
            found = engine.stats().counts.prefix_cached_tokens - before
            assert found == (20 if number else 0), name


def test_several_choices_and_beams_of_an_adapter(adapted: Adapted, engines: Any) -> None:
    text = prompt(4, 14)
    kinds: list[dict[str, Any]] = [
        {"num_choices": 3, "temperature": 0.9, "seed": 3},
        {"is_beam": True, "num_candidates": 3, "num_choices": 2},
    ]
    alone: Answers = {}
    for number, kind in enumerate(kinds):
        alone |= answers(engines(adapted.spec), [asked("legal", text, name=str(number), **kind)])
    payloads = [asked("legal", text, name=str(number), **kind) for number, kind in enumerate(kinds)]
    others = [asked("", text), asked("rhymes", text)]
    found = answers(engines(adapted.spec), [*payloads, *others])
    assert {key: found[key] for key in alone} == alone


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_tokens_do_not_depend_on_preemption(adapted: Adapted, engines: Any, kind: str) -> None:
    """`EngineOptions.preemption`, by an engine that has seen short outputs only, so that it admits too many."""
    num_requests = 48 if kind == "reference" else 96
    payloads = [asked(NAMES[number % 3], prompt(number, 20), 100, str(number)) for number in range(num_requests)]

    def found(**given: Any) -> Answers:
        engine = engines(adapted.spec, kind, max_num_seqs=150, **given)
        tiny.run(engine, [asked("", [number], 1, f"short-{number}") for number in range(64)])
        all_of_them = answers(engine, payloads)
        assert engine.num_preemptions > 0
        return all_of_them

    swapped = found(preemption="swap", host_kv_bytes=MIB)
    assert found(preemption="recompute") == swapped
    for number in range(3) if kind == "reference" else ():
        text = payloads[-1 - number].prompt_token_ids
        expected = tiny.greedy(adapted.merged[payloads[-1 - number].adapter], text, 100)[0]
        assert swapped[payloads[-1 - number].request_id, 0][0] == expected


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_an_evicted_request_goes_on_elsewhere(adapted: Adapted, engines: Any, kind: str) -> None:
    payload = asked("rhymes", prompt(2, 17), 20)
    (expected,) = tiny.run(engines(adapted.spec, kind), [payload])
    one, other = engines(adapted.spec, kind), engines(adapted.spec, kind)
    one.add(payload)
    tokens = [token for _ in range(6) for chunk in one.step(0.0) for token in chunk.token_ids]
    tokens += [token for chunk in one.evict([payload.request_id])[0] for token in chunk.token_ids]
    (image,) = one.hand_over([payload.request_id])
    # the same prompt, computed by another adapter, is there already
    tiny.run(other, [asked("legal", payload.prompt_token_ids)])
    assert other.add(payload, image.data) == []
    tokens += [token for chunks in tiny.steps(other) for chunk in chunks for token in chunk.token_ids]
    assert tokens == expected


def test_an_adapter_that_the_model_has_not_is_refused_at_once(adapted: Adapted, engines: Any) -> None:
    (chunk,) = engines(adapted.spec).add(asked("poems", [5, 6, 7]))
    assert (chunk.is_last, chunk.error) == (True, "'tiny' has no adapter 'poems' at this node")
