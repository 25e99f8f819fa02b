"""Draws depend on logits, seed and position, and have the distribution that was asked for."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from gpu_node.engine.plan import Draw
from gpu_node.executors.counter import mix, uniform
from gpu_node.executors.sampler import sample
from shared.messages import Sampling

NUM_DRAWS = 4000


def draw(position: int = 0, **sampling: float) -> Draw:
    return Draw(0, Sampling(max_tokens=1, **sampling), position)  # type: ignore[arg-type]


def shares(logits: list[float], **sampling: float) -> list[float]:
    """How often each token is drawn over many positions."""
    rows = torch.tensor(logits).repeat(NUM_DRAWS, 1)
    counts = Counter(sample(rows, [draw(position, **sampling) for position in range(NUM_DRAWS)]))
    return [counts[token] / NUM_DRAWS for token in range(len(logits))]


def test_the_numbers_are_pinned() -> None:
    # first output of SplitMix64 from state 0, as published with java.util.SplittableRandom
    assert mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert uniform(0, 0) == uniform(0, 0)
    assert len({uniform(seed, position) for seed in range(50) for position in range(50)}) == 2500
    assert uniform(-3, 0) != uniform(3, 0)


def test_uniform_numbers_are_uniform_along_positions_and_along_seeds() -> None:
    for numbers in ([uniform(1, n) for n in range(5000)], [uniform(n, 1) for n in range(5000)]):
        buckets = Counter(int(number * 10) for number in numbers)
        assert all(abs(buckets[bucket] / 5000 - 0.1) < 0.02 for bucket in range(10))


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [5.0, 5.0, 5.0, 5.0]])
    assert sample(logits, [draw(temperature=0), draw(temperature=0)]) == [1, 0]


def test_a_draw_does_not_depend_on_the_batch() -> None:
    torch.manual_seed(1)
    logits = torch.randn(6, 50)
    draws = [draw(position, seed=position * 7, temperature=1.3, top_p=0.9) for position in range(6)]
    together = sample(logits, draws)
    assert together == [sample(logits[row : row + 1], [draws[row]])[0] for row in range(6)]
    assert together == sample(logits.flip(0), draws[::-1])[::-1]


def test_draws_have_the_distribution_of_the_logits() -> None:
    expected = torch.tensor([0.0, 1.0, 2.0]).softmax(0).tolist()
    assert shares([0.0, 1.0, 2.0]) == pytest.approx(expected, abs=0.03)
    colder = torch.tensor([0.0, 2.0, 4.0]).softmax(0).tolist()
    assert shares([0.0, 1.0, 2.0], temperature=0.5) == pytest.approx(colder, abs=0.03)


# probabilities 0.1, 0.2, 0.3, 0.4
LOGITS = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().tolist()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({"top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_k": 9}, [0.1, 0.2, 0.3, 0.4]),
        ({"top_p": 0.65}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.75}, [0, 2 / 9, 3 / 9, 4 / 9]),
        ({"top_p": 0.01}, [0, 0, 0, 1]),
        ({"min_p": 0.6}, [0, 0, 3 / 7, 4 / 7]),
        # the nucleus is cut among the three that top-k leaves: 4/9, 7/9 >= 0.7
        ({"top_k": 3, "top_p": 0.7}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_k": 3, "top_p": 0.8, "min_p": 0.7}, [0, 0, 3 / 7, 4 / 7]),
    ],
)
def test_filters_keep_the_likely_tokens(sampling: dict[str, float], expected: list[float]) -> None:
    assert shares(LOGITS, **sampling) == pytest.approx(expected, abs=0.03)


def test_a_nucleus_larger_than_the_guess_is_found_too() -> None:
    logits = torch.zeros(1, 5000)
    logits[0, 4000:] = -30.0
    tokens = {sample(logits, [draw(position, top_p=0.9999)])[0] for position in range(300)}
    assert max(token for token in tokens if token is not None) < 4000
    assert len(tokens) > 250


def test_extreme_temperatures_do_not_overflow() -> None:
    logits = torch.tensor([[1000.0, -1000.0, 999.0]])
    assert sample(logits, [draw(temperature=1e-6)]) == [0]
    assert sample(logits, [draw(temperature=1e6)])[0] in (0, 1, 2)


def test_logits_that_are_no_numbers_give_no_token_and_spare_the_others() -> None:
    logits = torch.tensor([[0.0, float("nan")], [0.0, 1.0], [float("inf"), 0.0]])
    draws = [draw(temperature=0), draw(temperature=0), draw(temperature=1)]
    assert sample(logits, draws) == [None, 1, None]
