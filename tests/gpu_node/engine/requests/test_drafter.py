"""What a sequence is guessed to go on with, and how likely that is, by hand."""

from __future__ import annotations

import pytest

from gpu_node.engine.measures.acceptance import AcceptanceRates
from gpu_node.engine.requests.drafter import Drafter


def drafter_of(text: list[int]) -> Drafter:
    drafter = Drafter(AcceptanceRates())
    drafter.take(text)
    return drafter


def test_what_followed_the_last_tokens_before() -> None:
    text = [1, 2, 3, 4, 5, 1, 2]
    drafter = drafter_of(text)
    assert drafter.has_guess
    assert drafter.draft(text, 3) == [3, 4, 5]
    assert drafter.draft(text, 1) == [3]


def test_guesses_follow_guesses_where_a_place_runs_into_the_end() -> None:
    text = [1, 2, 3, 1, 2]
    assert drafter_of(text).draft(text, 7) == [3, 1, 2, 3, 1, 2, 3]


def test_a_place_is_followed_as_long_as_it_holds() -> None:
    text = [1, 2, 3, 4, 8, 3, 9, 1, 2]
    drafter = drafter_of(text)
    for token, guess in (3, 4), (4, 8):
        text.append(token)
        drafter.take(text)
        assert drafter.draft(text, 1) == [guess]
    text.append(3)  # it was 8
    drafter.take(text)
    assert not drafter.has_guess
    assert drafter.draft(text, 4) == drafter.chances(4) == []


def test_chances_are_those_of_ever_longer_matches() -> None:
    rates = AcceptanceRates()
    rates.observe(2, holds=False)  # (0 + 2 / 2) / (1 + 2) = 1 / 3
    rates.observe(4, holds=True)  # (1 + 2 / 2) / (1 + 2) = 2 / 3
    drafter = Drafter(rates)
    drafter.take([1, 2, 3, 4, 5, 1, 2])
    # of two tokens a third, of three a half (nothing is known), of four and more two thirds
    assert drafter.chances(4) == pytest.approx([1 / 3, 1 / 6, 1 / 9, 2 / 27])
    assert drafter.chances(4, least=0.15) == pytest.approx([1 / 3, 1 / 6])


def test_each_token_says_how_good_the_guess_for_it_was() -> None:
    rates = AcceptanceRates()
    drafter = Drafter(rates)
    text = [1, 2, 3, 4, 5, 1, 2]
    drafter.take(text)
    for token in (3, 9):  # a guess of two tokens that holds, then one of three that does not
        text.append(token)
        drafter.take(text)
    assert (rates.rate(2), rates.rate(3), rates.rate(4)) == pytest.approx((2 / 3, 1 / 3, 0.5))
    text.append(7)  # nothing was guessed
    drafter.take(text)
    assert (rates.rate(2), rates.rate(3), rates.rate(4)) == pytest.approx((2 / 3, 1 / 3, 0.5))
