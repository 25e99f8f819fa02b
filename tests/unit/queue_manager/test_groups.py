"""Request groups: who joins which, when a group is closed, what is known of its members."""

from __future__ import annotations

import pytest

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Request, State
from shared.slo import UNBOUNDED_S, Slo

SOON = Slo("interactive", deadline_s=20.0)
LATER = Slo("batch", deadline_s=3600.0)


def make_groups(max_requests: int = 2) -> RequestGroups:
    return RequestGroups(State(), max_requests)


def add(groups: RequestGroups, name: str, model: str = "a", slo: Slo = SOON, arrival_s: float = 0.0) -> Request:
    """A request that has joined its group."""
    request = Request(
        request_id=name,
        gateway="gw",
        model=model,
        slo=slo,
        tenant="default",
        max_tokens=100,
        arrival_s=arrival_s,
        attempt=0,
    )
    groups._state.requests[name] = request
    groups.join(request)
    return request


def finish(groups: RequestGroups, request: Request) -> None:
    group = groups.leave(request)
    del groups._state.requests[request.request_id]
    if not group.members:
        groups.close(group)


def test_requests_of_one_model_and_class_share_a_group() -> None:
    groups = make_groups()
    assert [add(groups, name).group for name in ("r0", "r1")] == ["g0", "g0"]


def test_another_model_or_another_class_is_another_group() -> None:
    groups = make_groups()
    assert [add(groups, "r0").group, add(groups, "r1", "b").group, add(groups, "r2", slo=LATER).group] == [
        "g0",
        "g1",
        "g2",
    ]


def test_promises_in_numbers_share_a_group_when_they_are_of_one_magnitude() -> None:
    groups = make_groups(max_requests=9)
    promises = [Slo("custom", deadline_s=seconds) for seconds in (3600.0, 1.0, 3000.0, 1.5, 2.0)]
    joined = [add(groups, f"r{number}", slo=slo).group for number, slo in enumerate(promises)]
    assert joined == ["g0", "g1", "g0", "g2", "g2"], "one second does not wait behind an hour"


def test_a_full_group_is_followed_by_the_next() -> None:
    groups = make_groups(max_requests=2)
    assert [add(groups, f"r{number}").group for number in range(5)] == ["g0", "g0", "g1", "g1", "g2"]


def test_a_group_counts_those_who_have_left() -> None:
    """Else a steady trickle would keep one group for ever, and its stream with it."""
    groups = make_groups(max_requests=2)
    first = add(groups, "r0")
    add(groups, "r1")
    finish(groups, first)
    assert add(groups, "r2").group == "g1"


def test_a_group_that_was_closed_is_not_joined_again() -> None:
    groups = make_groups()
    finish(groups, add(groups, "r0"))
    assert add(groups, "r1").group == "g1"
    assert groups._state.open_groups == {"a interactive": "g1"}


def test_closing_an_older_group_leaves_the_newest_open() -> None:
    groups = make_groups(max_requests=1)
    first = add(groups, "r0")
    add(groups, "r1")
    finish(groups, first)
    assert groups._state.open_groups == {"a interactive": "g1"}


def test_a_group_with_members_cannot_be_closed() -> None:
    groups = make_groups()
    request = add(groups, "r0")
    with pytest.raises(AssertionError, match="members"):
        groups.close(groups._state.groups[request.group])


def test_a_group_runs_while_a_member_is_pulled() -> None:
    groups = make_groups()
    request = add(groups, "r0")
    add(groups, "r1")
    group = groups._state.groups["g0"]
    assert (group.num_waiting, groups.is_running(group)) == (2, False)
    groups.pull(request, "n0")
    assert (group.num_waiting, groups.is_running(group)) == (1, True)
    finish(groups, request)
    assert (group.num_waiting, groups.is_running(group)) == (1, False)


def test_a_group_is_due_with_its_first_waiting_member() -> None:
    groups = make_groups()
    first = add(groups, "r0", arrival_s=10.0)
    add(groups, "r1", arrival_s=15.0)
    group = groups._state.groups["g0"]
    assert groups.start_by_s(group) == 30.0
    groups.pull(first, "n0")
    assert groups.start_by_s(group) == 35.0


def test_a_group_in_which_nobody_waits_is_due_with_its_first_member() -> None:
    groups = make_groups()
    groups.pull(add(groups, "r0", arrival_s=10.0), "n0")
    assert groups.start_by_s(groups._state.groups["g0"]) == 30.0


def test_a_request_without_a_promise_is_due_within_a_day() -> None:
    groups = make_groups()
    add(groups, "r0", slo=Slo("none"), arrival_s=5.0)
    assert groups.start_by_s(groups._state.groups["g0"]) == 5.0 + UNBOUNDED_S


def test_the_first_token_is_due_before_the_last() -> None:
    groups = make_groups()
    add(groups, "r0", slo=Slo("both", ttft_s=2.0, deadline_s=20.0))
    assert groups.start_by_s(groups._state.groups["g0"]) == 2.0


def test_before_anything_is_learnt_members_need_all_they_may_have() -> None:
    groups = make_groups()
    add(groups, "r0")
    add(groups, "r1").max_tokens = 30
    assert groups.expected_output_tokens(groups._state.groups["g0"]) == 130.0


def test_the_learnt_length_counts_up_to_what_a_member_may_have() -> None:
    groups = make_groups()
    groups.learn_length(add(groups, "r0"), 50)
    add(groups, "r1").max_tokens = 30
    assert groups.expected_output_tokens(groups._state.groups["g0"]) == 50 + 30


def test_the_learnt_length_follows_the_newest_answers() -> None:
    groups = make_groups()
    request = add(groups, "r0")
    groups.learn_length(request, 50)
    groups.learn_length(request, 150)
    assert groups._state.mean_output_tokens == {"a interactive": pytest.approx(0.9 * 50 + 0.1 * 150)}
