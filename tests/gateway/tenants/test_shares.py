"""What tenants may hold of a limit: by hand, and the bounds that no order of events can break."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.shares import ACTIVE_S, ShareRefusal, Shares, divided

WEIGHTS = {"gold": 3.0}  # everybody else has 1


def hold(shares: Shares, tenant: str, num: int, now: float = 0.0, *, has_others: bool = True) -> ShareRefusal | None:
    """Ask, and take what may be had."""
    refusal = shares.refusal(tenant, num, now, has_others=has_others)
    if refusal is None:
        shares.take(tenant, num, now)
    return refusal


def most(shares: Shares, tenant: str, now: float = 0.0) -> int:
    """How many a tenant gets, one after the other."""
    num = 0
    while hold(shares, tenant, 1, now) is None:
        num += 1
    return num


@pytest.mark.parametrize("weight", [0.25, 1.0, 3.0, 99.0])
def test_the_most_is_what_a_tenant_gets_that_is_alone(weight: float) -> None:
    for has_others in (True, False):
        found = Shares(100, 6, {"a": weight}).most("a", has_others=has_others)
        assert hold(Shares(100, 6, {"a": weight}), "a", found, has_others=has_others) is None
        assert hold(Shares(100, 6, {"a": weight}), "a", found + 1, has_others=has_others) is not None


def test_a_hundred_slots_by_hand() -> None:
    shares = Shares(100, 6, WEIGHTS)
    assert most(shares, "flood") == 94, "alone: all but the reserve"
    assert shares.refusal("flood", 1, 0.0, has_others=True) is ShareRefusal.SHARE
    # flood 1, gold 3 and a newcomer 1: of 100 gold has 60, so all that is free
    assert shares.share_of("gold", 0.0, has_others=True) == 60
    assert most(shares, "gold") == 6
    assert shares.refusal("gold", 1, 0.0, has_others=True) is ShareRefusal.FULL
    shares.give_back("flood", 10)  # as its requests end
    assert hold(shares, "flood", 5) is ShareRefusal.SHARE, (
        "it has 84, and its share is 20: five would leave less than six"
    )
    assert hold(shares, "flood", 4) is None
    assert hold(shares, "gold", 6) is None
    shares.give_back("flood", 88)
    assert most(shares, "gold") == 82, "gold has 12 of 12 that are held, and may go on to the reserve"
    assert most(shares, "flood") == 6, "its share is 20"


def test_without_others_a_limit_is_a_limit() -> None:
    shares = Shares(3, 1, {})
    assert [hold(shares, "default", 1, has_others=False) for _ in range(4)] == [None, None, None, ShareRefusal.FULL]


def test_who_has_not_asked_for_long_is_forgotten() -> None:
    shares = Shares(100, 6, {})
    for tenant in "ab":
        hold(shares, tenant, 1)
        shares.give_back(tenant, 1)
    assert shares.share_of("c", ACTIVE_S, has_others=True) == 25, "a, b, c and a newcomer"
    assert shares.share_of("c", ACTIVE_S + 0.1, has_others=True) == 50


def test_one_that_holds_something_is_not_forgotten() -> None:
    shares = Shares(100, 6, {})
    hold(shares, "a", 1)
    assert shares.share_of("c", 10 * ACTIVE_S, has_others=True) == pytest.approx(100 / 3)


def test_what_several_processes_have_of_a_limit() -> None:
    assert [divided(10, num) for num in (1, 3, 10, 40)] == [10, 3, 1, 1]


TENANTS = ("gold", "a", "b", "c")
Asked = tuple[str, int, float]
"""Who asks, for how many (below 0: gives so many back), how long after the last."""


@given(
    limit=st.integers(2, 60),
    reserve_share=st.floats(0.0, 0.5),
    events=st.lists(
        st.tuples(st.sampled_from(TENANTS), st.integers(-6, 6), st.sampled_from([0.0, 1.0, ACTIVE_S])), max_size=120
    ),
)
def test_whatever_happens(limit: int, reserve_share: float, events: list[Asked]) -> None:
    reserve = int(reserve_share * limit)
    shares, held, now = Shares(limit, reserve, WEIGHTS), Counter[str](), 0.0
    for tenant, num, later_s in events:
        now += later_s
        if num <= 0:
            num_back = min(-num, held[tenant])
            if num_back:
                shares.give_back(tenant, num_back)
            held[tenant] -= num_back
        else:
            free = limit - sum(held.values())
            share = shares.share_of(tenant, now, has_others=True)
            refusal = hold(shares, tenant, num, now)
            if num > free:
                assert refusal is ShareRefusal.FULL
            elif held[tenant] + num <= share or free - num >= reserve:
                assert refusal is None, "below its share, or room enough"
            else:
                assert refusal is ShareRefusal.SHARE
            held[tenant] += num if refusal is None else 0
        assert {tenant: shares.held_by(tenant) for tenant in TENANTS} == {one: held[one] for one in TENANTS}
        assert shares.num_held == sum(held.values()) <= limit


@given(limit=st.integers(2, 200), reserve_share=st.floats(0.0, 0.5), tenant=st.sampled_from(TENANTS))
def test_a_lone_tenant_has_all_but_the_reserve_and_another_one_the_rest(
    limit: int, reserve_share: float, tenant: str
) -> None:
    reserve = int(reserve_share * limit)
    shares = Shares(limit, reserve, WEIGHTS)
    assert most(shares, tenant) >= limit - reserve
    left = limit - shares.num_held
    assert most(shares, "newcomer") == min(
        left, max(left - reserve, int(shares.share_of("newcomer", 0.0, has_others=True)))
    )
