"""How long an answer is taken to be where its end was promised."""

from __future__ import annotations

from math import log, sqrt

import pytest

from shared.estimator.answer import long_answer_s, long_answer_tokens
from shared.estimator.batching import Batching, batching
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost


def work(std_output_tokens: float) -> Batching:
    """Four together at most, 0.1 s a step with one and 0.4 s with four; answers of 100 tokens, no prompts."""
    rate = ModelRate("a", StepCost(0.0, 0.1, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    node = NodeState("n0", "a", max_num_seqs=4, rates=[rate])
    load = RequestShape(model="a", mean_output_tokens=100.0, std_output_tokens=std_output_tokens)
    return batching(node, load)


def test_equal_answers_are_as_long_as_the_mean() -> None:
    assert long_answer_tokens(work(0.0)) == 100.0
    assert long_answer_s(work(0.0)) == pytest.approx(100 * 0.4), "each step has four rows"


def test_of_unlike_answers_the_longest_of_three() -> None:
    assert long_answer_tokens(work(40.0)) == pytest.approx(100 + 40 * sqrt(2 * log(3)))
    assert long_answer_s(work(40.0)) == pytest.approx(0.4 * long_answer_tokens(work(40.0)))


def test_a_limit_cuts_it_but_never_below_the_mean() -> None:
    assert long_answer_tokens(work(40.0), limit=128.0) == 128.0
    assert long_answer_tokens(work(40.0), limit=90.0) == 100.0
