"""From recorded logits, an attempt that goes on draws what an undisturbed one draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.vllm.inside.draw_rule import drawn
from gpu_node.vllm.inside.draw_state import extra_args, state_of
from gpu_node.vllm.words.border import CoreConstraint
from shared.messages.requests.payload import Constraint
from tests.gpu_node.masks import mask_of
from tests.gpu_node.vllm.test_draw_state import REQUEST

VOCABULARY = 40
NUM_TOKENS = 16
PROMPT = [5, 6, 7]
ALL_OPEN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "logit_bias": []}
NO_PENALTIES = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}


def run(logits: torch.Tensor, had: list[int], **sampling: Any) -> list[int]:
    """As a row of vLLM's batch: what was drawn before this attempt is prompt to it."""
    request = replace(REQUEST, token_ids=[*PROMPT, *had], **sampling)
    output: list[int] = []
    state = state_of(extra_args(request), request.token_ids, output)
    assert state is not None
    while len(had) + len(output) < NUM_TOKENS:
        token = drawn(logits[len(had) + len(output)], state)
        assert token is not None
        output.append(token)
    return [*had, *output]


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        ALL_OPEN | NO_PENALTIES | {"temperature": 1.0},
        ALL_OPEN | {"temperature": 0.0, "repetition_penalty": 1.5, "presence_penalty": 2.0},
        ALL_OPEN | {"temperature": 0.7, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    ],
    ids=["all", "seed", "greedy with penalties", "seed and penalties"],
)
def test_wherever_it_was_interrupted(sampling: dict[str, Any]) -> None:
    logits = torch.randn(NUM_TOKENS, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 2
    undisturbed = run(logits, [], **sampling)
    assert len(set(undisturbed)) > 2
    for num_had in range(1, NUM_TOKENS):
        assert run(logits, undisturbed[:num_had], **sampling) == undisturbed


def test_logits_that_are_no_numbers_are_left_to_vllm() -> None:
    state = state_of(extra_args(REQUEST), REQUEST.token_ids, [])
    assert state is not None
    assert drawn(torch.full((VOCABULARY,), torch.nan), state) is None


def test_of_a_constrained_request_logits_of_minus_infinity_are_a_mask() -> None:
    constrained = replace(REQUEST, constrained=CoreConstraint(Constraint("regex", "a"), [8]))
    state = state_of(extra_args(constrained), REQUEST.token_ids, [])
    plain = state_of(extra_args(REQUEST), REQUEST.token_ids, [])
    assert state is not None
    assert plain is not None
    for seed in range(20):
        logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2
        allowed = [seed, 8, 39]  # 8 is in the output: it has its penalties
        masked = torch.full_like(logits, -torch.inf)
        masked[allowed] = logits[allowed]
        draw = Draw(0, state.sampling, 1, state.choice, None, PROMPT, [8], mask_of(allowed))
        expected = sample(logits, draw, [8])
        assert expected is not None
        assert drawn(masked, state) == expected.token_id
        assert drawn(masked, plain) is None, "nobody has masked it: the model is broken"
    assert drawn(torch.full((VOCABULARY,), torch.nan), state) is None
    assert drawn(torch.full((VOCABULARY,), -torch.inf), state) is None
