"""Least squares with no negative unknown, against hand-computed cases and against its own definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.engine.measures.least_squares import NormalEquations, nonnegative

TOLERANCE = 1e-6


def test_without_a_bound_that_matters_it_is_plain_least_squares() -> None:
    # 2x + y = 5, x + 3y = 10
    assert nonnegative([[2.0, 1.0], [1.0, 3.0]], [5.0, 10.0]) == pytest.approx([1.0, 3.0])


def test_an_unknown_that_would_be_negative_is_0_and_the_others_fit_without_it() -> None:
    # unbound: y = -1; without it 2x = 3
    assert nonnegative([[2.0, 1.0], [1.0, 1.0]], [3.0, 1.0]) == pytest.approx([1.5, 0.0])
    assert nonnegative([[2.0, 0.0], [0.0, 1.0]], [-3.0, -1.0]) == [0.0, 0.0]


def test_what_is_too_small_to_be_halved_is_nothing() -> None:
    assert nonnegative([[2.0, 0.0], [0.0, 1.0]], [5e-324, 3.0]) == [0.0, 3.0]
    assert nonnegative([[2.0]], [5e-324]) == [0.0]


def test_a_line_through_points() -> None:
    sums = NormalEquations(2)
    for x in (1.0, 2.0, 5.0):
        sums.add((1.0, x), 3.0 + 2.0 * x, weight=1.0)
    assert sums.solve((0.0, 0.0), 1e-12) == pytest.approx([3.0, 2.0])


def test_older_measurements_count_less() -> None:
    sums = NormalEquations(1)
    sums.add((1.0,), 0.0, weight=1.0)
    sums.add((1.0,), 4.0, weight=1.0, keep=1 / 3)
    assert sums.solve((0.0,), 0.0) == pytest.approx([3.0])  # (0 / 3 + 4) / (1 / 3 + 1)


def test_the_prior_decides_what_was_not_measured() -> None:
    sums = NormalEquations(2)
    sums.add((1.0, 1.0), 6.0, weight=1e9)  # only the sum is known
    assert sums.solve((1.0, 3.0), 1.0) == pytest.approx([2.0, 4.0])


measurements = st.lists(
    st.tuples(st.tuples(*[st.floats(0, 10)] * 4), st.floats(-10, 10), st.floats(0.1, 10)), min_size=1, max_size=12
)


@given(measurements)
def test_no_unknown_can_be_moved_to_fit_better(taken: list[tuple[tuple[float, ...], float, float]]) -> None:
    """The conditions of Karush, Kuhn and Tucker: slope 0 where an unknown is free, and not upwards where it is 0."""
    sums = NormalEquations(4)
    for row, value, weight in taken:
        sums.add(row, value, weight)
    for i in range(4):
        sums.matrix[i][i] += 0.01
    theta = nonnegative(sums.matrix, sums.vector)
    scale = max(1.0, *(abs(value) for value in sums.vector), *(sums.matrix[i][i] for i in range(4)))
    for i in range(4):
        slope = sums.vector[i] - sum(sums.matrix[i][j] * theta[j] for j in range(4))
        assert theta[i] >= 0
        assert slope <= TOLERANCE * scale
        if theta[i] > TOLERANCE:
            assert slope == pytest.approx(0, abs=TOLERANCE * scale)
