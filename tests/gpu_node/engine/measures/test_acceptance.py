"""Shares of guesses that hold, by hand."""

from __future__ import annotations

import pytest

from gpu_node.engine.measures.acceptance import MODEL_MEMORY, SEQUENCE_MEMORY, AcceptanceRates


def test_half_of_them_before_anything_is_known() -> None:
    assert AcceptanceRates().rate(3) == 0.5


def test_a_model_counts_its_guesses_beside_two_that_nobody_made() -> None:
    rates = AcceptanceRates()
    rates.observe(2, holds=True)
    rates.observe(2, holds=True)
    keep = 1 - 1 / MODEL_MEMORY
    assert rates.rate(2) == pytest.approx((keep + 1 + 2 * 0.5) / (keep + 1 + 2))
    assert rates.rate(3) == 0.5


def test_a_sequence_counts_its_own_beside_two_as_those_of_others_are() -> None:
    of_model = AcceptanceRates()
    for _ in range(4000):
        of_model.observe(2, holds=True)
    own = AcceptanceRates(of_model)
    others = of_model.rate(2)
    assert others == pytest.approx(1.0, abs=0.01)
    assert own.rate(2) == others
    own.observe(2, holds=False)
    assert own.rate(2) == pytest.approx(2 * of_model.rate(2) / 3)
    assert of_model.rate(2) < others, "what it sees is told to the model's"


def test_it_forgets() -> None:
    own = AcceptanceRates(AcceptanceRates())
    for _ in range(200):
        own.observe(2, holds=True)
    for _ in range(5 * SEQUENCE_MEMORY):
        own.observe(2, holds=False)
    assert own.rate(2) < 0.1
