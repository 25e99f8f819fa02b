"""By when a request must have started."""

from __future__ import annotations

import math
from random import Random

import pytest

from shared.messages.requests.slo import CUSTOM, MAX_START_S, MIN_START_S, UNBOUNDED_S, Slo

ARRIVAL_S = 1000.0


@pytest.mark.parametrize(
    ("slo", "start_by_s"),
    [
        (Slo(name="first token", ttft_s=2.0), 1002.0),
        (Slo(name="end to end", deadline_s=20.0), 1020.0),
        (Slo(name="both, first token tighter", ttft_s=2.0, deadline_s=20.0), 1002.0),
        (Slo(name="both, end tighter", ttft_s=30.0, deadline_s=20.0), 1020.0),
        (Slo(name="pace only", tpot_s=0.1), 1000.0 + UNBOUNDED_S),
        (Slo(name="no promise"), 1000.0 + UNBOUNDED_S),
        (Slo(name="at once", ttft_s=0.0, deadline_s=20.0), 1000.0),
    ],
    ids=lambda value: value.name if isinstance(value, Slo) else None,
)
def test_the_tighter_promise_counts(slo: Slo, start_by_s: float) -> None:
    assert slo.start_by_s(ARRIVAL_S) == start_by_s


def test_without_a_promise_a_request_is_due_within_a_day() -> None:
    assert UNBOUNDED_S == 24 * 3600


def test_a_hundred_thousand_promises_in_numbers_are_of_thirty_kinds() -> None:
    """What groups, plans and metrics tell apart; each request is still judged by its own numbers."""
    draw = Random(0)
    starts_s = [math.exp(draw.uniform(math.log(MIN_START_S), math.log(MAX_START_S))) for _ in range(100_000)]
    kinds = {Slo(name=CUSTOM, ttft_s=start_s).kind for start_s in [MIN_START_S, MAX_START_S, *starts_s]}
    assert len(kinds) == 30
    assert {"custom-0.001953125s", "custom-1s", "custom-1048576s"} <= kinds
    assert Slo(name=CUSTOM, tpot_s=0.1).kind == Slo(name=CUSTOM, tpot_s=0.2).kind
