"""What an engine refuses at once, and what it says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpu_node.engine.steps.batch.limits import MAX_BIASES, refusal
from shared.config.engines.engine import EngineOptions
from tests.gpu_node.bookkeeping import model, payload


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be a number of at least 0"),
        ({"temperature": math.inf}, "temperature is inf; it must be a number of at least 0"),
        ({"top_k": -1}, "top_k is -1; it must be at least 0"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p is 1.5; it must be between 0 and 1"),
        ({"presence_penalty": 2.1}, "presence_penalty is 2.1; it must be between -2.0 and 2.0"),
        ({"presence_penalty": math.nan}, "presence_penalty is nan; it must be between -2.0 and 2.0"),
        ({"frequency_penalty": -2.1}, "frequency_penalty is -2.1; it must be between -2.0 and 2.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be between 0.01 and 10.0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf; it must be between 0.01 and 10.0"),
        ({"repetition_penalty": 1e-38}, "repetition_penalty is 1e-38; it must be between 0.01 and 10.0"),
        ({"repetition_penalty": math.nan}, "repetition_penalty is nan; it must be between 0.01 and 10.0"),
        (
            {"logit_bias": [(5, 1.0), (100, 1.0)]},
            "logit_bias names token id 100, which is outside the vocabulary of 100",
        ),
        ({"logit_bias": [(-1, 1.0)]}, "logit_bias names token id -1, which is outside the vocabulary of 100"),
        ({"logit_bias": [(7, 100.5)]}, "logit_bias of token id 7 is 100.5; it must be between -100.0 and 100.0"),
        ({"logit_bias": [(7, math.nan)]}, "logit_bias of token id 7 is nan; it must be between -100.0 and 100.0"),
        ({"logit_bias": [(7, 0.0)] * (MAX_BIASES + 1)}, "logit_bias has 1025 entries; at most 1024 are taken"),
        ({"num_logprobs": -1}, "num_logprobs is -1; it must be between 0 and 20"),
        ({"num_logprobs": 21}, "num_logprobs is 21; it must be between 0 and 20"),
    ],
)
def test_numbers_that_no_draw_can_have_are_refused(sampling: dict[str, Any], text: str) -> None:
    assert refusal(payload("a", [1, 2], **sampling), model(), EngineOptions()) == text


@pytest.mark.parametrize(
    "sampling",
    [
        {"presence_penalty": 2.0, "frequency_penalty": -2.0, "repetition_penalty": 0.01},
        {"logit_bias": [(0, -100.0), (99, 100.0)] * (MAX_BIASES // 2)},
        {"num_logprobs": 0},
        {"num_logprobs": 20},
        {"num_logprobs": None},
    ],
)
def test_the_last_numbers_inside_the_limits_are_taken(sampling: dict[str, Any]) -> None:
    assert refusal(payload("a", [1, 2], **sampling), model(), EngineOptions()) == ""
