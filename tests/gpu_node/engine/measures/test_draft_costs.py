"""What guesses cost, learnt from steps: by hand before there are any, then as the steps were made up."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.measures.draft_costs import DraftCosts, GuessingCost
from shared.messages.nodes.step_cost import StepCost
from tests.gpu_node.bookkeeping import decodes

COST = StepCost(step_s=0.9, token_s=0.1, context_token_s=0.0)
"""One sequence that decodes takes a second; what it says of rows is of no use here."""


def test_before_the_first_decodes() -> None:
    # a row is taken to cost half of an even share of the step, and the wait a tenth of it
    assert DraftCosts().of(3, 2.0) == GuessingCost(plain_s=2.0, row_s=0.25, wait_s=0.2)


def test_rows_and_waits_are_told_apart() -> None:
    costs = DraftCosts()
    had_guesses = False
    for number in range(120):
        num_guesses = (0, 4, 2, 0, 0, 1)[number % 6]
        # plain steps are slower than predicted, a row takes .05 s, and the host .3 s behind guesses
        costs.observe(decodes(num_guesses), 1.2 + 0.05 * num_guesses + 0.3 * had_guesses, COST)
        had_guesses = num_guesses > 0
    found = costs.of(1, 1.0)
    assert found.plain_s == pytest.approx(1.2, rel=0.02)
    assert found.row_s == pytest.approx(0.05, rel=0.05)
    assert found.wait_s == pytest.approx(0.3, rel=0.1)


def test_batches_of_other_sizes_are_learnt_apart() -> None:
    costs = DraftCosts()
    for number in range(60):
        costs.observe(decodes(number % 3), 1.0 + 0.6 * (number % 3), COST)
    assert costs.of(1, 1.0).row_s == pytest.approx(0.6, rel=0.1)
    assert costs.of(2, 1.0).row_s == pytest.approx(1 / 6)
    assert costs.of(3, 1.0) == DraftCosts().of(3, 1.0)


def test_what_was_dear_is_forgotten_while_there_are_no_guesses() -> None:
    costs = DraftCosts()
    for _ in range(10):
        costs.observe(decodes(2), 3.0, COST)
    dear = costs.of(1, 1.0).row_s
    assert dear > 0.5
    for _ in range(1000):
        costs.observe(decodes(0), 1.0, COST)
    assert costs.of(1, 1.0).row_s == pytest.approx(DraftCosts().of(1, 1.0).row_s, rel=0.3)


def test_one_step_that_was_held_up_counts_as_twice_as_long() -> None:
    costs = DraftCosts()
    for number in range(60):
        num_guesses = number % 3 % 2
        costs.observe(decodes(num_guesses), 1.0 + 0.1 * num_guesses, COST)
    before = costs.of(1, 1.0).row_s
    costs.observe(decodes(1), 100.0, COST)
    assert costs.of(1, 1.0).row_s < before + 0.1


def test_steps_with_prompts_and_steps_of_unknown_cost_say_nothing() -> None:
    costs = DraftCosts()
    costs.observe(decodes(0, num_rows=5), 9.0, COST)
    costs.observe(decodes(3), 9.0, None)
    costs.observe(StepPlan(()), 9.0, COST)
    assert costs.of(1, 1.0) == DraftCosts().of(1, 1.0)
