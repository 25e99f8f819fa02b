"""How fast a running request gets its tokens."""

from __future__ import annotations

import pytest

from services.queue_manager.learnt.token_rates import (
    MAX_PACES,
    MEMORY_REQUESTS,
    PRIOR_TOKENS_PER_S,
    TokenRate,
    TokenRates,
)
from services.queue_manager.learnt.weights_at import WeightsAt
from services.queue_manager.state.request import Request
from shared.messages.requests.slo import Slo


def test_the_first_request_sets_the_pace_and_later_ones_move_it() -> None:
    paces = TokenRates({})
    assert paces.tokens_per_s("a", "n0") == PRIOR_TOKENS_PER_S
    paces.observe("a", "n0", 100, seconds=2)
    assert paces.tokens_per_s("a", "n0") == 50
    paces.observe("a", "n0", 100, seconds=1)
    kept = 1 - 1 / MEMORY_REQUESTS
    assert paces.tokens_per_s("a", "n0") == pytest.approx((kept * 100 + 100) / (kept * 2 + 1))
    assert paces.tokens_per_s("a", "n1") == paces.tokens_per_s("b", "n0") == PRIOR_TOKENS_PER_S


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_who_ends_as_it_begins_or_before_it_was_expected_to_says_nothing(seconds: float) -> None:
    paces = TokenRates({})
    paces.observe("a", "n0", 100, seconds)
    assert paces.tokens_per_s("a", "n0") == PRIOR_TOKENS_PER_S


def test_the_oldest_are_forgotten() -> None:
    known: dict[WeightsAt, TokenRate] = {}
    paces = TokenRates(known)
    for number in range(MAX_PACES):
        paces.observe("a", f"n{number}", 1, seconds=1)
    paces.observe("a", "n0", 1, seconds=1)
    paces.observe("a", "new", 1, seconds=1)
    assert len(known) == MAX_PACES
    assert WeightsAt("a", "n0") in known
    assert WeightsAt("a", "n1") not in known


def test_tokens_count_from_when_a_request_begins() -> None:
    """One that runs since 3 s has had a second's 20 tokens by 4 s, beside the 5 of an earlier attempt."""
    paces = TokenRates({})
    request = Request("r0", "gw", "a", Slo("batch"), "t", 8, 100, 0.0, 1, node="n0", begins_s=3.0, done_tokens=5)
    assert [paces.drawn_tokens(request, now) for now in (1.0, 3.0, 4.0, 99.0)] == [5.0, 5.0, 25.0, 100.0]
