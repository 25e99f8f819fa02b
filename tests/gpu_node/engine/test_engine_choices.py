"""Choices, candidates and beams on the reference executor; steps planned ahead give what steps one by one give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Output, Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.workload import answers, mixed_requests, prompt, request

FILL = 1


def make_engine(path: Path, **options: Any) -> Engine:
    given: dict[str, Any] = {"block_size": 4, "kv_cache_bytes": 1 << 20, "max_num_seqs": 32, "step_tokens": 64}
    chosen = EngineOptions(**given | options)
    engine = Engine(ReferenceExecutor(chosen), chosen)
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
    return engine


def test_each_choice_draws_what_it_draws_without_the_others(tiny_path: Path) -> None:
    together = answers(make_engine(tiny_path), [request("a", prompt(1, 11), num_choices=3, seed=5)])
    assert len({tuple(tokens) for tokens, _ in together.values()}) == 3, "choices differ"
    for choice in range(3):
        ended = [Output([], "" if choice == other else "stop") for other in range(3)]
        alone = Payload("a", 0, "g", "tiny", prompt(1, 11), Sampling(max_tokens=8, num_choices=3, seed=5), ended)
        assert answers(make_engine(tiny_path), [alone]) == {("a", choice): together["a", choice]}


def test_resumed_choices_go_on_as_if_never_interrupted(tiny_path: Path) -> None:
    whole = answers(make_engine(tiny_path), [request("a", prompt(2, 9), 12, num_choices=3, seed=7)])
    outputs = [Output(whole["a", choice][0][: 2 + 3 * choice]) for choice in range(3)]
    resumed = Payload("a", 1, "g", "tiny", prompt(2, 9), Sampling(max_tokens=12, num_choices=3, seed=7), outputs)
    rest = answers(make_engine(tiny_path), [resumed])
    for choice, output in enumerate(outputs):
        tokens, reason = rest["a", choice]
        assert ([*output.token_ids, *tokens], reason) == whole["a", choice]


def beams_of_transformers(model: LlamaForCausalLM, token_ids: list[int], sampling: Sampling) -> list[list[int]]:
    """Outputs, best first, filled up with `FILL` to the length of the longest."""
    generation: Any = model
    with torch.inference_mode():
        rows = generation.generate(
            torch.tensor([token_ids]),
            num_beams=sampling.num_candidates,
            num_return_sequences=sampling.num_choices,
            max_new_tokens=sampling.max_tokens,
            length_penalty=sampling.length_penalty,
            early_stopping="never",
            do_sample=False,
            pad_token_id=FILL,
        ).tolist()
    return [row[len(token_ids) :] for row in rows]


@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("width", [2, 4])
def test_beams_are_those_of_transformers(
    tiny_model: LlamaForCausalLM, tiny_path: Path, width: int, penalty: float
) -> None:
    sampling = Sampling(10, num_candidates=width, num_choices=width, is_beam=True, length_penalty=penalty)
    payloads = [Payload(str(seed), 0, "g", "tiny", prompt(seed, 7), sampling) for seed in range(4)]
    found = answers(make_engine(tiny_path), payloads)
    for payload in payloads:
        for choice, expected in enumerate(beams_of_transformers(tiny_model, payload.prompt_token_ids, sampling)):
            tokens, _ = found[payload.request_id, choice]
            assert [*tokens, *[FILL] * 10][: len(expected)] == expected
            assert len(tokens) <= len(expected)


@pytest.mark.parametrize(("seed", "step_tokens", "max_num_seqs"), [(0, 64, 32), (1, 7, 6), (2, 16, 9)])
def test_steps_planned_ahead_give_what_steps_one_by_one_give(
    tiny_path: Path, seed: int, step_tokens: int, max_num_seqs: int
) -> None:
    found = [
        answers(
            make_engine(tiny_path, async_scheduling=ahead, step_tokens=step_tokens, max_num_seqs=max_num_seqs),
            mixed_requests(24, seed),
        )
        for ahead in (True, False)
    ]
    assert found[0] == found[1]
    assert {reason for _, reason in found[0].values()} == {"stop", "length"}


def test_the_model_can_change_while_steps_of_forgotten_requests_are_in_flight(tiny_path: Path) -> None:
    engine = make_engine(tiny_path)
    engine.add(request("a", prompt(1, 5)))
    assert engine.step(0.0) == []  # in flight
    engine.reset()
    assert engine.has_work
    assert engine.load_model(ModelSpec(name="other", source=str(tiny_path), max_model_len=tiny.CONTEXT)).name == "other"
    assert engine.step(0.0) == []
    assert not engine.has_work
    engine.check()
