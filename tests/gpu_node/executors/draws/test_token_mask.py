"""A mask leaves a draw the tokens that it allows, and changes nothing else about it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.executors.draws.token_mask import allowed_tokens
from gpu_node.kernels.token_draw import TokenDraw
from shared.messages.requests.payload import Sampling
from tests.gpu_node.masks import mask_of

NUM_DRAWS = 4000
# probabilities 0.1, 0.2, 0.3, 0.4
LOGITS = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()


def draw(allowed: bytes, position: int = 0, num_top: int | None = None, **sampling: Any) -> Draw:
    return Draw(0, Sampling(max_tokens=1, **sampling), position, num_top=num_top, allowed=allowed)


def token(logits: list[float], one: Draw, output: tuple[int, ...] = ()) -> int:
    drawn = sample(torch.tensor(logits), one, output)
    assert drawn is not None
    return drawn.token_id


def shares(allowed: bytes, **sampling: Any) -> list[float]:
    """How often each token is drawn over many positions."""
    found = [sample(LOGITS, draw(allowed, position, **sampling)) for position in range(NUM_DRAWS)]
    counts = Counter(None if one is None else one.token_id for one in found)
    return [counts[each] / NUM_DRAWS for each in range(len(LOGITS))]


def test_bits_stand_for_tokens_the_lowest_of_a_byte_first() -> None:
    assert allowed_tokens(b"\x02\x81", 16).nonzero().flatten().tolist() == [1, 8, 15]
    assert allowed_tokens(b"\x02", 16).nonzero().flatten().tolist() == [1], "what lies behind the end is not allowed"
    assert allowed_tokens(b"\x02\xff", 3).tolist() == [False, True, False], "bits behind the vocabulary say nothing"


@pytest.mark.parametrize("mask", [b"\x00", b"\xf8", b"\x00\xff"])
def test_a_mask_that_allows_nothing_is_refused_wherever_a_draw_is_made(mask: bytes) -> None:
    error = "a mask allows no token of a vocabulary of 3"
    with pytest.raises(ValueError, match=error):
        allowed_tokens(mask, 3)
    with pytest.raises(ValueError, match=error):
        sample(torch.zeros(3), draw(mask))
    with pytest.raises(ValueError, match=error):
        TokenDraw(0, Sampling(max_tokens=1), 0, 0, None, (), (), mask).mask(3)


def test_devices_are_told_no_bit_behind_the_vocabulary() -> None:
    def told(allowed: bytes, vocab_size: int) -> bytes:
        return TokenDraw(0, Sampling(max_tokens=1), 0, 0, None, (), (), allowed).mask(vocab_size)

    assert told(b"\xff\xff\xff", 11) == b"\xff\x07"
    assert told(b"\x04", 11) == b"\x04"
    assert told(b"\xff\xff", 8).rstrip(b"\0") == b"\xff"
    assert told(b"", 11) == b""


def test_greedy_takes_the_most_likely_token_that_is_allowed_the_lowest_id_among_equals() -> None:
    logits = [9.0, 1.0, 3.0, 2.0, 3.0]
    assert token(logits, draw(mask_of([1, 2, 3, 4]), temperature=0)) == 2
    assert token(logits, draw(mask_of([1, 3, 4]), temperature=0)) == 4
    assert token(logits, draw(mask_of([1]), temperature=0)) == 1
    assert token([-1e30, 5.0], draw(mask_of([0]), temperature=0)) == 0


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ({}, [1 / 6, 2 / 6, 3 / 6, 0]),
        ({"temperature": 0.5}, [1 / 14, 4 / 14, 9 / 14, 0]),
        # the two most likely of those that are allowed
        ({"top_k": 2}, [0, 2 / 5, 3 / 5, 0]),
        ({"top_k": 3}, [1 / 6, 2 / 6, 3 / 6, 0]),
        # more than are allowed
        ({"top_k": 4}, [1 / 6, 2 / 6, 3 / 6, 0]),
        # of 1/6, 2/6, 3/6: the last two have 5/6
        ({"top_p": 0.8}, [0, 2 / 5, 3 / 5, 0]),
        ({"top_p": 0.4}, [0, 0, 1, 0]),
        # at least 0.5 times 0.3, not 0.5 times 0.4
        ({"min_p": 0.5}, [0, 2 / 5, 3 / 5, 0]),
        ({"top_k": 4, "top_p": 0.99}, [1 / 6, 2 / 6, 3 / 6, 0]),
    ],
)
def test_filters_are_among_the_tokens_that_are_allowed(sampling: dict[str, Any], expected: list[float]) -> None:
    """All but the most likely one."""
    assert shares(mask_of([0, 1, 2]), **sampling) == pytest.approx(expected, abs=0.03)


def test_one_token_that_is_left_is_drawn_however_unlikely_it_is() -> None:
    for temperature in (0.0, 1e-300, 2.0):
        filters: dict[str, Any]
        for filters in ({}, {"top_k": 3}, {"top_p": 0.1}, {"top_k": 2, "top_p": 0.9, "min_p": 0.5}):
            one = draw(mask_of([1]), 7, temperature=temperature, **filters)
            assert token([50.0, -50.0, 3.0], one) == 1
            assert token([1e30, -1e30, 3.0], one) == 1


def test_a_mask_of_all_tokens_changes_no_draw() -> None:
    for position in range(200):
        options: dict[str, Any] = {"temperature": 1.3, "top_k": 3, "top_p": 0.9, "seed": 5}
        plain = draw(b"", position, **options)
        assert sample(LOGITS, draw(mask_of(range(4)), position, **options)) == sample(LOGITS, plain)


def test_bias_and_penalties_come_before_the_mask() -> None:
    greedy: dict[str, Any] = {"temperature": 0.0, "logit_bias": [(0, 100.0), (2, 3.0)]}
    assert token([1.0, 4.0, 2.0], draw(mask_of([1, 2]), **greedy)) == 2, "no bias lets a token be drawn that may not"
    penalised: dict[str, Any] = {"temperature": 0.0, "presence_penalty": 2.0}
    assert token([9.0, 4.0, 3.0], draw(mask_of([1, 2]), 1, **penalised), (1,)) == 2
    assert token([9.0, 4.0, 3.0], draw(mask_of([1]), 1, **penalised), (1,)) == 1


def test_logprobs_are_those_of_the_model() -> None:
    drawn = sample(LOGITS, draw(mask_of([1]), num_top=2, temperature=2.0))
    assert drawn is not None
    assert drawn.logprob is not None
    assert drawn.logprob.logprob == pytest.approx(math.log(0.2))
    assert [one for one, _ in drawn.logprob.top] == [3, 2]
    assert [value for _, value in drawn.logprob.top] == pytest.approx([math.log(0.4), math.log(0.3)])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_give_no_token_allowed_or_not(bad: float, temperature: float) -> None:
    for mask in (mask_of([0]), mask_of([1]), mask_of([0, 2])):
        assert sample(torch.tensor([0.0, bad, 0.0]), draw(mask, temperature=temperature)) is None
    assert sample(torch.tensor([0.0, 3e38, -3e38]), draw(mask_of([0, 2]), temperature=temperature)) is not None
