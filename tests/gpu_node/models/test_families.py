"""Every family computes what `transformers` computes with the same weights, whatever the order of the work."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.border.plan import Draw, ScheduledSequence
from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import FAMILIES, save

pytestmark = pytest.mark.slow

NUM_TOKENS = 20
TIE = 1e-3
"""Logits nearer than this are a tie in float32: either token is right."""


@dataclass(frozen=True)
class Case:
    """A tiny random model of a family, and the directory where it is saved."""

    model: Any
    path: Path

    def check_greedy(self, prompt: list[int], output: list[int], num_tokens: int = NUM_TOKENS) -> None:
        """Each token is the most likely one after those before it: one pass over prompt and output tells for all."""
        assert len(output) == num_tokens
        logits = self.logits([*prompt, *output[:-1]])[len(prompt) - 1 :]
        behind = logits.max(dim=-1).values - logits[torch.arange(num_tokens), torch.tensor(output)]
        assert float(behind.max()) < TIE, f"{output} is not greedy after {prompt}: {behind.tolist()}"

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """[tokens, vocabulary] by `transformers`."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(torch.tensor([token_ids])).logits[0]
        return logits


@pytest.fixture(scope="module", params=FAMILIES, ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp(request.param)
    return Case(save(request.param, path), path)


def prompts(num_prompts: int, longest: int = 24) -> list[list[int]]:
    numbers = random.Random(7)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_prompts)]


def engine_of(case: Case, block_size: int = 16, step_tokens: int = 256) -> Engine:
    return tiny.make_engine(case.path, block_size, step_tokens, kv_cache_bytes=2 << 20)


def outputs_of(engine: Engine, texts: list[list[int]], num_tokens: int = NUM_TOKENS) -> list[list[int]]:
    return tiny.run(engine, [tiny.request(str(number), text, num_tokens) for number, text in enumerate(texts)])


def test_logits_of_a_mixed_batch_are_those_of_transformers(case: Case) -> None:
    executor = ReferenceExecutor(EngineOptions(block_size=3, kv_cache_bytes=2 << 20))
    executor.load_model(ModelSpec(name="tiny", source=str(case.path), max_model_len=tiny.CONTEXT))
    texts = [list(range(5, 30)), list(range(40, 60)), [9]]
    tables = [tuple(range(number * 10, number * 10 + 10))[::-1] for number in range(3)]

    def part(number: int, start: int, token_ids: list[int]) -> ScheduledSequence:
        draw = Draw(number, Sampling(max_tokens=8, temperature=0.0), 0)
        return ScheduledSequence(number, tuple(token_ids), start, tables[number], (draw,))

    with torch.inference_mode():
        first = executor.logits([part(0, 0, texts[0]), part(1, 0, texts[1][:7])])
        # one decodes, one goes on with its prefill, one begins
        second = executor.logits([part(0, len(texts[0]), [33]), part(1, 7, texts[1][7:]), part(2, 0, texts[2])])
    expected = [texts[0], texts[1][:7], [*texts[0], 33], texts[1], texts[2]]
    for ours, token_ids in zip([*first, *second], expected, strict=True):
        torch.testing.assert_close(ours, case.logits(token_ids)[-1], rtol=2e-4, atol=2e-4)


def test_greedy_tokens_of_one_request_alone(case: Case) -> None:
    engine = engine_of(case)
    for text in prompts(2):
        (output,) = outputs_of(engine, [text])
        case.check_greedy(text, output)


@pytest.mark.parametrize(("block_size", "step_tokens"), [(16, 256), (3, 7)])
def test_greedy_tokens_of_a_batch_with_chunks_and_small_blocks(case: Case, block_size: int, step_tokens: int) -> None:
    texts = prompts(5)
    for text, output in zip(texts, outputs_of(engine_of(case, block_size, step_tokens), texts), strict=True):
        case.check_greedy(text, output)


def test_a_request_resumed_in_the_middle_goes_on(case: Case) -> None:
    (text,) = prompts(1)
    (whole,) = outputs_of(engine_of(case), [text])
    (rest,) = tiny.run(engine_of(case, block_size=4), [tiny.request("a", text, NUM_TOKENS, output=whole[:9])])
    case.check_greedy(text, whole[:9] + rest)


def test_a_prefix_that_is_there_already_changes_nothing(case: Case) -> None:
    engine = engine_of(case, block_size=4)
    common = list(range(20, 40))
    outputs_of(engine, [common], num_tokens=2)
    texts = [[*common, number] for number in (50, 51)]
    for text, output in zip(texts, outputs_of(engine, texts), strict=True):
        case.check_greedy(text, output)


WHAT_MATTERS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": None},
    "qwen2-window": {"use_sliding_window": False},
    "llama-linear": {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    "llama-llama3": {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    "mixtral": {"num_experts_per_tok": 1},
}


@pytest.mark.parametrize("name", WHAT_MATTERS)
def test_the_tests_would_see_it_if_a_family_s_particular_were_left_out(name: str, tmp_path: Path) -> None:
    """With the same weights and the one number changed, `transformers` gives other logits."""
    model = save(name, tmp_path / "with")
    other = save(name, tmp_path / "without", **WHAT_MATTERS[name])
    other.load_state_dict(model.state_dict())
    token_ids = torch.arange(3, 33)[None]
    with torch.inference_mode():
        assert float((model(token_ids).logits - other(token_ids).logits)[0, -1].abs().max()) > 10 * TIE
