import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.batches.decisions.promise import LEAST_S, promised_s
from shared.messages.requests.slo import MAX_START_S


@pytest.mark.parametrize(
    ("left_s", "promise_s"),
    [
        (86_400, 77_935.877),  # 2^16.25
        (65_536, 65_536.0),
        (65_535, 55_108.987),  # 2^15.75
        (3_600, 3_444.311),  # 2^11.75
        (60, 53.817),  # 2^5.75
        (1.5, 1.414),
        (0.2, LEAST_S),
        (-5.0, LEAST_S),
    ],
)
def test_it_is_the_next_rung_below(left_s: float, promise_s: float) -> None:
    assert promised_s(left_s) == promise_s


@given(st.floats(LEAST_S, MAX_START_S))
def test_it_is_never_more_than_is_left_and_a_sixth_less_at_most(left_s: float) -> None:
    assert left_s / 2**0.25 - 0.001 <= promised_s(left_s) <= left_s


def test_a_day_has_few_promises() -> None:
    seconds = [1.0 + tenth / 10 for tenth in range(864_000)]

    assert len(set(map(promised_s, seconds))) == 66  # 1, 2^0.25, ..., 2^16.25
