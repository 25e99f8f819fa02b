"""The cost that is fitted to measured steps."""

from __future__ import annotations

import random

import pytest

from gpu_node.bench.profile_grid import NUM_DECODES, grid
from gpu_node.bench.step_fit import StepSample, fit, median_error
from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost

TRUE = StepCost(step_s=0.01, token_s=0.0005, context_token_s=2e-6, attended_token_s=1e-7)


def samples(seed: int, number: int, noise: float = 0.0) -> list[StepSample]:
    chance = random.Random(seed)
    found = []
    for _ in range(number):
        rows, context = chance.randint(1, 256), chance.randint(1, 5_000)
        size = (rows, rows + context, rows * (rows + 1) // 2 + context)
        found.append(StepSample(*size, TRUE.predict_s(*size) * (1 + chance.uniform(-noise, noise))))
    return found


def test_steps_that_follow_the_model_give_it_back() -> None:
    cost = fit(samples(0, 50))
    assert cost.step_s == pytest.approx(TRUE.step_s, rel=1e-3)
    assert cost.token_s == pytest.approx(TRUE.token_s, rel=1e-3)
    assert cost.attended_token_s == pytest.approx(TRUE.attended_token_s, rel=1e-2)
    assert median_error(cost, samples(1, 50)) < 1e-4


def test_noise_averages_out() -> None:
    assert median_error(fit(samples(0, 300, noise=0.2)), samples(1, 50)) < 0.02


def test_steps_that_were_held_up_count_little() -> None:
    held_up = [StepSample(8, 800, 800, 2.0)] * 5
    assert median_error(fit([*samples(0, 50), *held_up]), samples(1, 50)) < 0.05


def test_an_error_is_relative_to_what_was_measured() -> None:
    cost = StepCost(1.0, 0.0, 0.0)
    assert median_error(cost, [StepSample(1, 1, 1, seconds) for seconds in (0.5, 0.8, 2.0)]) == 0.5


def test_the_grid_holds_what_the_engine_can_run() -> None:
    model = LoadedModel(
        name="m",
        num_blocks=200,
        block_size=16,
        block_bytes=1,
        max_model_len=512,
        vocab_size=10,
        eos_token_ids=frozenset(),
    )
    options = EngineOptions(max_num_seqs=4, step_tokens=64)
    points = grid((1, 4, 8), (16, 256, 1024), options, model)
    # 8 are too many together, 1,024 tokens too many for the model; half of 3,200 tokens of memory do for 4 x 256
    assert [str(point) for point in points] == [
        f"1x16x{1 + NUM_DECODES}",
        f"1x256x{5 + NUM_DECODES}",  # 63 rows a step beside one that decodes
        f"4x16x{2 + NUM_DECODES}",
        f"4x256x{18 + NUM_DECODES}",  # 1,024 rows at 60 a step
    ]
