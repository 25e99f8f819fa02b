"""By when a request must have started."""

from __future__ import annotations

import pytest

from shared.slo import UNBOUNDED_S, Slo

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
