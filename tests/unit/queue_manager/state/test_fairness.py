"""Tenants' virtual time: start tags by hand, and the bound that no tenant can break."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.state.fairness import Fairness, VirtualTime
from shared.config.services.queue import TenantSpec
from shared.messages.requests.request_kind import RequestKind

A, B = RequestKind("a", "x"), RequestKind("b", "x")
TENANTS = {"gold": TenantSpec(weight=4), "silver": TenantSpec(weight=2)}


def make() -> tuple[Fairness, dict[RequestKind, VirtualTime]]:
    lines: dict[RequestKind, VirtualTime] = {}
    return Fairness(lines, TENANTS), lines


def open_group(fairness: Fairness, tenant: str, *tokens: float) -> float:
    """Start tag of a group whose requests expect so many tokens."""
    tag = fairness.open(A, tenant)
    for one in tokens:
        fairness.charge(A, tenant, one)
    return tag


def test_a_tenants_groups_follow_one_another_by_tokens_over_weight() -> None:
    fairness, _ = make()
    assert [open_group(fairness, "gold", 300, 100) for _ in range(3)] == [0, 100, 200]
    assert [open_group(fairness, "silver", 300, 100) for _ in range(3)] == [0, 200, 400]
    assert [open_group(fairness, "anybody", 300, 100) for _ in range(3)] == [0, 400, 800], "weight 1"


def test_a_newcomer_starts_with_what_runs_and_not_before() -> None:
    fairness, _ = make()
    tags = [open_group(fairness, "flood", 100) for _ in range(50)]
    for tag in tags[:3]:
        fairness.begin(A, tag)
    assert open_group(fairness, "late", 100) == 200, "beside the flood's third group, before its fourth"
    assert open_group(fairness, "late", 100) == 300


def test_virtual_time_does_not_run_back() -> None:
    fairness, lines = make()
    fairness.open(A, "t")
    fairness.begin(A, 500)
    fairness.begin(A, 100)
    assert lines[A].virtual_tokens == 500


def test_lines_do_not_compete() -> None:
    fairness, _ = make()
    open_group(fairness, "t", 1000)
    assert fairness.open(B, "t") == 0


def test_what_had_begun_before_costs_nothing_again() -> None:
    fairness, lines = make()
    open_group(fairness, "t", 1000)
    fairness.begin(A, 0)
    assert fairness.reopen(A) == 0
    assert lines[A].finish_tags == {"t": 1000}


def test_a_line_without_groups_is_forgotten() -> None:
    fairness, lines = make()
    open_group(fairness, "t", 1000)
    fairness.reopen(A)
    fairness.close(A)
    assert lines[A].num_groups == 1
    fairness.close(A)
    assert lines == {}
    assert fairness.reopen(A, 700) == 700, "those who come back do so before newcomers"
    assert open_group(fairness, "t", 1) == 700


def test_tenants_without_a_claim_are_forgotten() -> None:
    """Ten thousand tenants with a group each; all have begun when ten more come. Two are looked at for each of them."""
    fairness, lines = make()
    for number in range(10_000):
        open_group(fairness, f"t{number}", 10)
    fairness.begin(A, 10)
    for number in range(10):
        open_group(fairness, f"u{number}", 10)
    assert len(lines[A].finish_tags) == 10_000 + 10 - 20


weights = st.sampled_from([0.5, 1.0, 2.0, 4.0])  # so that all numbers are exact
sizes = st.lists(st.integers(1, 1000), min_size=1, max_size=15)


@given(st.lists(st.tuples(weights, sizes, st.integers(0, 10)), min_size=2, max_size=4))
def test_tenants_that_wait_are_served_by_their_weights(tenants: list[tuple[float, list[int], int]]) -> None:
    """Goyal et al., Theorem 1: whenever two tenants have something waiting all the time, what they are served of it
    differs by no more than their largest groups, each over its weight. Some come late; one server, in order of tags.
    """
    specs = {str(number): TenantSpec(weight=weight) for number, (weight, _, _) in enumerate(tenants)}
    fairness = Fairness({}, specs)
    waiting: list[tuple[float, int, str, int]] = []
    served: list[dict[str, float]] = [dict.fromkeys(specs, 0.0)]
    backlogged: list[set[str]] = []
    fairness.open(A, "")  # keeps the line
    num_opened = 0
    for turn in range(sum(len(groups) for _, groups, _ in tenants) + 11):
        for name, (_, groups, arrival) in zip(specs, tenants, strict=True):
            for size in groups if arrival == turn else ():
                tag = fairness.open(A, name)
                fairness.charge(A, name, size)
                waiting.append((tag, num_opened, name, size))
                num_opened += 1
        if waiting:
            first = min(waiting)
            backlogged.append({name for _, _, name, _ in waiting})
            waiting.remove(first)
            tag, _, name, size = first
            fairness.begin(A, tag)
            served.append(served[-1] | {name: served[-1][name] + size / specs[name].weight})
    largest = {name: max(groups) / weight for name, (weight, groups, _) in zip(specs, tenants, strict=True)}
    for one, other in combinations(specs, 2):
        for begin in range(len(backlogged)):
            for end in range(begin, len(backlogged)):
                if not {one, other} <= backlogged[end]:
                    break
                gained = [served[end + 1][name] - served[begin][name] for name in (one, other)]
                assert abs(gained[0] - gained[1]) <= largest[one] + largest[other]
