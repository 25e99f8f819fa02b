"""What sequences that decode have of steps and get from them, by hand."""

from __future__ import annotations

import pytest

from gpu_node.engine.measures.yield_learner import LEAST_STEPS, MEMORY_STEPS, YieldLearner
from shared.messages.step_cost import DecodeYield


def test_nothing_is_told_of_a_few_steps() -> None:
    learner = YieldLearner()
    for _ in range(LEAST_STEPS - 1):
        learner.observe(5, 5)
    assert learner.decode is None
    learner.observe(5, 5)
    assert learner.decode == DecodeYield(pytest.approx(5.0), pytest.approx(5.0))


def test_steps_without_guesses_count_as_much_as_those_with() -> None:
    learner = YieldLearner()
    for _ in range(LEAST_STEPS):
        learner.observe(5, 3)
        learner.observe(1, 1)
    decode = learner.decode
    assert decode is not None
    assert (decode.rows, decode.tokens) == (pytest.approx(3.0, rel=0.001), pytest.approx(2.0, rel=0.001))


def test_what_was_long_ago_is_forgotten() -> None:
    learner = YieldLearner()
    for _ in range(10 * MEMORY_STEPS):
        learner.observe(5, 5)
    for _ in range(MEMORY_STEPS):
        learner.observe(1, 1)
    assert learner.decode is not None
    assert learner.decode.tokens == pytest.approx(1 + 4 / 2.71828, rel=0.01), "1/e of it is left"
