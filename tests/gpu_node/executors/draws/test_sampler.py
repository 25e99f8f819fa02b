"""Draws depend on logits, sampling, seed, choice and position, and have the distribution that was asked for."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.counter import mix, uniform
from gpu_node.executors.draws.sampler import sample
from shared.messages.requests.payload import Sampling

NUM_DRAWS = 4000


def draw(position: int = 0, num_top: int | None = None, prompt: tuple[int, ...] = (), **sampling: Any) -> Draw:
    return Draw(0, Sampling(max_tokens=1, **sampling), position, num_top=num_top, prompt_token_ids=prompt)


def token(logits: list[float], one: Draw, output: tuple[int, ...] = ()) -> int | None:
    drawn = sample(torch.tensor(logits), one, output)
    return None if drawn is None else drawn.token_id


def shares(logits: list[float], output: tuple[int, ...] = (), **sampling: Any) -> list[float]:
    """How often each token is drawn over many positions."""
    counts = Counter(token(logits, draw(position, **sampling), output) for position in range(NUM_DRAWS))
    return [counts[each] / NUM_DRAWS for each in range(len(logits))]


def test_the_numbers_are_pinned() -> None:
    # first output of SplitMix64 from state 0, as published with java.util.SplittableRandom
    assert mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert uniform(3, 5) == uniform(3, 5, choice=0) == 0.6166680854611184
    numbers = {uniform(seed, n, choice) for seed in range(30) for n in range(30) for choice in range(30)}
    assert len(numbers) == 27_000
    assert uniform(-3, 0) != uniform(3, 0)


def test_uniform_numbers_are_uniform_along_positions_seeds_and_choices() -> None:
    for numbers in (
        [uniform(1, n) for n in range(5000)],
        [uniform(n, 1) for n in range(5000)],
        [uniform(1, 1, n) for n in range(5000)],
        [uniform(1, n, 7) for n in range(5000)],
    ):
        buckets = Counter(int(number * 10) for number in numbers)
        assert all(abs(buckets[bucket] / 5000 - 0.1) < 0.02 for bucket in range(10))


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert token([0.0, 3.0, 1.0, 3.0], draw(temperature=0)) == 1
    assert token([5.0, 5.0, 5.0, 5.0], draw(temperature=0)) == 0


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
        # at temperature 1/2, 0.01, 0.04, 0.09, 0.16 of 0.3: the filters come after it
        ({"temperature": 0.5, "top_p": 0.8}, [0, 0, 9 / 25, 16 / 25]),
    ],
)
def test_filters_keep_the_likely_tokens(sampling: dict[str, Any], expected: list[float]) -> None:
    assert shares(LOGITS, **sampling) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("sampling", [{"top_k": 1}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 1.0}])
def test_tokens_that_tie_with_the_last_one_kept_are_kept_too(sampling: dict[str, Any]) -> None:
    assert shares([0.0, 1.0, 1.0, 1.0], **sampling) == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.03)


def test_extreme_temperatures_do_not_overflow() -> None:
    assert token([1000.0, -1000.0, 999.0], draw(temperature=1e-6)) == 0
    assert token([1000.0, -1000.0, 999.0], draw(temperature=1e-320)) == 0
    assert token([1000.0, -1000.0, 999.0], draw(temperature=1e300)) in (0, 1, 2)


def test_logits_that_are_no_numbers_give_no_token() -> None:
    for bad in (math.nan, math.inf, -math.inf):
        for temperature in (0.0, 1.0):
            assert token([0.0, bad], draw(temperature=temperature)) is None
    assert token([3e38, 3e38], draw(temperature=1)) in (0, 1)


GREEDY: dict[str, Any] = {"temperature": 0.0}


@pytest.mark.parametrize(
    ("sampling", "prompt", "output", "expected"),
    [
        ({"logit_bias": [(2, 100.0)]}, (), (), 2),
        ({"logit_bias": [(0, -100.0)]}, (), (), 1),
        ({"logit_bias": [(2, 1.5), (2, 1.5)]}, (), (), 2),  # each entry is added
        # presence: once for a token of the output, however often; not for one of the prompt
        ({"presence_penalty": 0.4}, (0,), (), 0),
        ({"presence_penalty": 0.4}, (), (0, 0, 0, 0, 0), 0),
        ({"presence_penalty": 0.6}, (), (0,), 1),
        ({"presence_penalty": -2.0}, (), (2,), 2),
        # frequency: for each time
        ({"frequency_penalty": 0.2}, (), (0, 0), 0),
        ({"frequency_penalty": 0.2}, (), (0, 0, 0), 1),
        ({"frequency_penalty": 0.2}, (0, 0, 0), (), 0),
        # repetition: prompt and output, once each; what is not positive is multiplied
        ({"repetition_penalty": 1.2}, (0,), (), 0),
        ({"repetition_penalty": 1.4}, (0,), (), 1),
        ({"repetition_penalty": 1.2}, (0,), (0, 0, 0), 0),
        ({"repetition_penalty": 1.4}, (), (0,), 1),
        ({"repetition_penalty": 0.4}, (2,), (), 0),
        ({"repetition_penalty": 0.1}, (2,), (), 2),
    ],
)
def test_bias_and_penalties_move_the_most_likely_token(
    sampling: dict[str, Any], prompt: tuple[int, ...], output: tuple[int, ...], expected: int
) -> None:
    """Logits 2, 1.5, 0.5."""
    assert token([2.0, 1.5, 0.5], draw(prompt=prompt, **GREEDY, **sampling), output) == expected


def test_negative_logits_move_away_from_zero_under_repetition() -> None:
    assert token([-1.0, -1.5], draw(prompt=(0,), repetition_penalty=1.4, **GREEDY)) == 0
    assert token([-1.0, -1.5], draw(prompt=(0,), repetition_penalty=1.6, **GREEDY)) == 1


def test_bias_comes_before_penalties_and_penalties_before_temperature() -> None:
    # (1 + 3) / 2 = 2 of token 0, not 1 / 2 + 3 = 3.5; and so less than the 2.5 of token 1
    biased: dict[str, Any] = {"logit_bias": [(0, 3.0)], "repetition_penalty": 2.0}
    assert token([1.0, 2.5], draw(prompt=(0,), **GREEDY, **biased)) == 1
    # (2 - 1) / 0.5 = 2 of token 0, not 2 / 0.5 - 1 = 3
    expected = torch.tensor([2.0, 2.0]).softmax(0).tolist()
    assert shares([2.0, 1.0], (0,), presence_penalty=1.0, temperature=0.5) == pytest.approx(expected, abs=0.03)


def test_logprobs_are_those_of_the_model_whatever_changes_the_draw() -> None:
    changed: dict[str, Any] = {"temperature": 0.0, "logit_bias": [(0, 100.0)], "presence_penalty": 2.0}
    drawn = sample(torch.tensor(LOGITS), draw(num_top=2, **changed), (3,))
    assert drawn is not None
    assert drawn.logprob is not None
    assert drawn.token_id == 0
    assert drawn.logprob.logprob == pytest.approx(math.log(0.1))
    assert [top for top, _ in drawn.logprob.top] == [3, 2]
    assert [logprob for _, logprob in drawn.logprob.top] == pytest.approx([math.log(0.4), math.log(0.3)])


def test_as_many_logprobs_as_asked_for_and_equals_in_the_order_of_their_ids() -> None:
    logits = torch.tensor([0.0, 1.0, 0.0, 1.0])
    by_count = {num_top: sample(logits, draw(num_top=num_top)) for num_top in (None, 0, 3, 9)}
    found = {num_top: drawn.logprob for num_top, drawn in by_count.items() if drawn is not None}
    assert len(found) == 4
    assert found[None] is None
    tops = {num_top: [top for top, _ in logprob.top] for num_top, logprob in found.items() if logprob is not None}
    assert tops == {0: [], 3: [1, 3, 0], 9: [1, 3, 0, 2]}
