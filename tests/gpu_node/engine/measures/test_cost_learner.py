"""What an engine learns of its steps' cost."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_node.engine.measures.cost_learner import MAX_RATIO, NOISE, PRIOR_SPREAD, WARM_UP_STEPS, CostLearner
from shared.messages.nodes.step_cost import StepCost

TRUE = StepCost(step_s=0.01, token_s=0.0005, context_token_s=2e-6, attended_token_s=1e-7)
PRIOR = StepCost(step_s=0.02, token_s=0.001, context_token_s=1e-6, attended_token_s=3e-7)


def steps(seed: int, num_steps: int) -> list[tuple[int, int, int]]:
    """Rows, context and attended tokens of decodes with now and then a prompt."""
    numbers = random.Random(seed)
    found = []
    for _ in range(num_steps):
        batch, context = numbers.randint(1, 32), numbers.randint(10, 800)
        prompt = numbers.choice([0, 0, 0, 64, 200])
        found.append((batch + prompt, batch * context + prompt, batch * context + prompt * (prompt + 1) // 2))
    return found


def learn(learner: CostLearner, true: StepCost, num_steps: int, seed: int = 0, noise: float = 0.0) -> None:
    chance = random.Random(seed)
    for step in steps(seed, num_steps):
        learner.learn(*step, true.predict_s(*step) * (1 + chance.uniform(-noise, noise)))


def worst(cost: StepCost | None, true: StepCost = TRUE) -> float:
    """Largest relative error of a prediction over other steps."""
    assert cost is not None
    return max(abs(cost.predict_s(*step) / true.predict_s(*step) - 1) for step in steps(99, 200))


def test_with_no_step_it_is_the_prior_and_without_one_nothing() -> None:
    assert CostLearner(PRIOR).cost == PRIOR
    assert CostLearner().cost is None


def test_the_first_steps_behind_a_load_say_nothing() -> None:
    learner = CostLearner(PRIOR)
    for _ in range(WARM_UP_STEPS):
        learner.learn(8, 100, 100, 5.0)
    assert learner.cost == PRIOR


def test_context_at_a_receiver_has_a_price_of_its_own() -> None:
    """Until one lies there, it is as dear as at home: what reading and attending cost together."""
    learner = CostLearner(StepCost(1.0, 0.1, 0.02, 0.01), has_remote=True)
    assert learner.cost == StepCost(1.0, 0.1, 0.02, 0.01, 0.02 + 0.01)
    true = StepCost(1.0, 0.1, 0.02, 0.01, remote_token_s=0.002)
    for number in range(WARM_UP_STEPS + 600):
        local, remote = 40 + 7 * (number % 11), 100 + 13 * (number % 17)
        learner.learn(8, local, local, true.predict_s(8, local, local, remote), remote)
    assert learner.cost is not None
    assert learner.cost.remote_token_s == pytest.approx(0.002, rel=0.05)
    assert learner.cost.decode_context_token_s == pytest.approx(0.03, rel=0.05)


def test_one_step_moves_the_prior_as_far_as_both_are_believed() -> None:
    """Only the weights: prior 1 s ± 1 s, measured 2 s ± 0.1 s: (1 / 1 + 2 / 0.01) / (1 / 1 + 1 / 0.01) s."""
    learner = CostLearner(StepCost(1.0, 1e-9, 0.0, 0.0))
    for _ in range(WARM_UP_STEPS + 1):
        learner.learn(1, 0, 0, 2.0)
    assert (PRIOR_SPREAD, NOISE) == (1.0, 0.1)
    assert learner.cost is not None
    assert learner.cost.step_s == pytest.approx((1 + 200) / (1 + 100))


@pytest.mark.parametrize("prior", [PRIOR, None], ids=["profiled", "unknown"])
def test_it_finds_the_true_cost(prior: StepCost | None) -> None:
    learner = CostLearner(prior)
    learn(learner, TRUE, 500)
    assert worst(learner.cost) < 0.01


def test_noise_averages_out() -> None:
    learner = CostLearner(PRIOR)
    learn(learner, TRUE, 1000, noise=0.3)
    assert worst(learner.cost) < 0.05


def test_a_load_that_only_decodes_keeps_the_priors_word_on_prompts() -> None:
    learner = CostLearner(TRUE)
    for step in range(3000):
        context = 16 * (100 + step % 50)
        learner.learn(16, context, context, TRUE.predict_s(16, context, context))
    assert learner.cost is not None
    assert learner.cost.predict_s(256, 256, 256 * 257 / 2) == pytest.approx(TRUE.predict_s(256, 256, 256 * 257 / 2))


def test_a_step_that_was_held_up_counts_as_two_at_most() -> None:
    learner = CostLearner(TRUE)
    learn(learner, TRUE, 200)
    learner.learn(8, 800, 800, 60.0)
    learn(learner, TRUE, 16)
    assert MAX_RATIO == 2.0
    assert worst(learner.cost) < 0.05


def test_a_device_that_has_become_slower_is_followed() -> None:
    learner = CostLearner(TRUE)
    learn(learner, TRUE, 200)
    slower = StepCost(
        *(5 * number for number in (TRUE.step_s, TRUE.token_s, TRUE.context_token_s, TRUE.attended_token_s))
    )
    learn(learner, slower, 6_000, seed=1)
    assert worst(learner.cost, slower) < 0.1


def test_a_step_that_the_numbers_say_costs_nothing_is_learnt_from() -> None:
    """Steps of one row whose context explains all leave nothing for rows; then a step without context comes."""
    learner = CostLearner(StepCost(0.0, 0.0, 1e-3, 0.0))
    learn_s = [(1, 100, 0, 0.1)] * (WARM_UP_STEPS + 4) + [(3, 0, 0, 0.01)] * 200
    for step in learn_s:
        learner.learn(*step)
    assert learner.cost is not None
    assert learner.cost.predict_s(1, 100, 0) == pytest.approx(0.1, rel=0.1)
    assert 0 < learner.cost.predict_s(3, 0, 0) < 0.02


costs = st.builds(
    StepCost,
    step_s=st.floats(1e-3, 0.1),
    token_s=st.floats(1e-5, 1e-2),
    context_token_s=st.floats(1e-8, 1e-5),
    attended_token_s=st.floats(0, 1e-6),
)
factors = st.tuples(*[st.floats(0.25, 4)] * 4)


@settings(max_examples=20, deadline=None)
@given(true=costs, off=factors, seed=st.integers(0, 100))
def test_a_prior_that_is_wrong_is_put_right_and_no_number_is_negative(
    true: StepCost, off: tuple[float, float, float, float], seed: int
) -> None:
    step, row, context, attended = off
    prior = StepCost(
        true.step_s * step, true.token_s * row, true.context_token_s * context, true.attended_token_s * attended
    )
    learner = CostLearner(prior)
    learn(learner, true, 1_500, seed=seed)
    cost = learner.cost
    assert cost is not None
    assert min(cost.step_s, cost.token_s, cost.context_token_s, cost.attended_token_s) >= 0
    # where the fixed part of a step is nearly all of it, what tokens add is learnt slowly
    assert worst(cost, true) < max(0.1, worst(prior, true) / 2)
