"""What sequences that decode have of steps and get from them, by hand."""

from __future__ import annotations

import math

import pytest

from gpu_node.engine.measures.yield_learner import LEAST_STEPS, MEMORY_STEPS, YieldLearner


def means(learner: YieldLearner) -> tuple[float, float]:
    """Rows and tokens, as it tells them."""
    assert learner.decode is not None
    return learner.decode.rows, learner.decode.tokens


def test_nothing_is_told_of_a_few_steps() -> None:
    learner = YieldLearner()
    for _ in range(LEAST_STEPS - 1):
        learner.observe(5, 5)
    assert learner.decode is None
    learner.observe(5, 5)
    assert means(learner) == pytest.approx((5.0, 5.0))


def test_steps_without_guesses_count_as_much_as_those_with() -> None:
    learner = YieldLearner()
    for _ in range(LEAST_STEPS):
        learner.observe(5, 3)
        learner.observe(1, 1)
    assert means(learner) == pytest.approx((3.0, 2.0), rel=0.001)


def test_what_was_long_ago_is_forgotten() -> None:
    learner = YieldLearner()
    for _ in range(10 * MEMORY_STEPS):
        learner.observe(5, 5)
    for _ in range(MEMORY_STEPS):
        learner.observe(1, 1)
    left = 1 + 4 * math.exp(-1)
    assert means(learner) == pytest.approx((left, left), rel=0.01)
