"""What a plan is told of a group, by hand."""

from __future__ import annotations

import pytest

from services.queue_manager.groups.group_loads import Loads
from services.queue_manager.learnt.arrivals import MAX_FLOWS
from services.queue_manager.learnt.lengths import MIN_OBSERVED, Lengths
from services.queue_manager.learnt.token_rates import PRIOR_TOKENS_PER_S, TokenRates
from shared.messages.nodes.placement import GroupLoad, RequestShape
from tests.unit.queue_manager.made import LARGE, MadeGroups

PRIOR = (16, 64, 256, 1024)


def taught(*lengths: int) -> MadeGroups:
    """Groups that have seen answers of these lengths, each as often as it takes to be believed."""
    groups = MadeGroups(LARGE)
    for tokens in lengths:
        for _ in range(MIN_OBSERVED):
            request = groups.add("teacher")
            groups.learn_answer(request, tokens, 0.0, is_cut=False)
            groups.finish(request)
    return groups


def test_those_who_wait_before_anything_is_known() -> None:
    groups = MadeGroups(LARGE)
    groups.add("r0", prompt_tokens=10, max_tokens=100)
    group = groups.group_of(groups.add("r1", prompt_tokens=30, max_tokens=20))
    means = [sum(min(one, limit) for one in PRIOR) / 4 for limit in (100, 20)]
    squares = [sum(min(one, limit) ** 2 for one in PRIOR) / 4 for limit in (100, 20)]
    mean = sum(means) / 2
    load = groups.load(group, now=1.0)
    assert mean == 44.5
    assert load == GroupLoad(
        group="g0",
        model="a",
        deadline_s=20.0,
        slo="interactive",
        tenant="default",
        num_waiting=2,
        mean_prompt_tokens=20.0,
        mean_output_tokens=mean,
        std_output_tokens=(sum(squares) / 2 - mean**2) ** 0.5,
        max_tokens=60.0,
        std_prompt_tokens=10.0,  # of 10 and 30
        output_error_tokens=(sum(squares) / 2 - mean**2) ** 0.5 / 2,  # of four lengths
        end_by_s=20.0,
        promised_s=20.0,
    )


def test_learnt_lengths_count_up_to_each_members_limit() -> None:
    groups = taught(40)
    for name, limit in (("r0", 100), ("r1", 20), ("r2", 10)):
        request = groups.add(name, max_tokens=limit)
    load = groups.load(groups.group_of(request), now=0.0)
    assert load.mean_output_tokens == pytest.approx((40 + 20 + 10) / 3)
    assert load.std_output_tokens == pytest.approx(((1600 + 400 + 100) / 3 - (70 / 3) ** 2) ** 0.5)


def test_those_who_run_have_drawn_something_since_they_were_pulled() -> None:
    groups = taught(30, 90)
    requests = [groups.add(name, prompt_tokens=10, max_tokens=200) for name in ("r0", "r1")]
    for request, pulled_s in zip(requests, (0.0, 1.0), strict=True):
        groups.pull(request, "n0", pulled_s)
    group = groups.group_of(requests[0])
    loads = [groups.load(group, now) for now in (1.0, 2.5, 5.5)]
    # one second and none; 2.5 and 1.5; 5.5 and 4.5: the mean of what they have drawn
    drawn = [seconds * PRIOR_TOKENS_PER_S for seconds in (0.5, 2.0, 5.0)]
    assert drawn == [10, 40, 100]
    assert [load.running_output_tokens for load in loads] == [
        pytest.approx(2 * (20 + 80) / 2),  # either may be over at 30, or at 90
        pytest.approx(2 * 50),  # only 90 is left
        pytest.approx(2 * 60),  # beyond both: as if it began anew
    ]
    assert [load.kv_tokens for load in loads] == [pytest.approx(2 * (10 + one)) for one in drawn]
    # nobody waits: what those who run were when they began
    assert (loads[0].num_waiting, loads[0].mean_prompt_tokens, loads[0].mean_output_tokens) == (0, 10.0, 60.0)


def test_nothing_is_drawn_before_the_prompt_has_been_computed() -> None:
    """Pulled at 0 s; of 90 tokens 20 a second come from 2 s on, of which its keys and values are held."""
    groups = taught(90)
    request = groups.add("r0", prompt_tokens=10, max_tokens=200)
    groups.pull(request, "n0", 0.0, begins_s=2.0)
    loads = [groups.load(groups.group_of(request), now) for now in (0.0, 2.0, 3.0)]
    assert [load.running_output_tokens for load in loads] == [90.0, 90.0, 70.0]
    assert [load.kv_tokens for load in loads] == [10.0, 10.0, 30.0]


def test_nobody_is_thought_to_have_drawn_more_than_allowed() -> None:
    groups = taught(30)
    request = groups.add("r0", prompt_tokens=10, max_tokens=50)
    groups.pull(request, "n0", 0.0)
    load = groups.load(groups.group_of(request), now=100.0)
    assert (load.running_output_tokens, load.kv_tokens) == (1.0, 60.0)


def test_the_pace_is_that_of_the_node() -> None:
    groups = taught(90)
    for name, node in (("r0", "n0"), ("r1", "n1")):
        request = groups.add(name, max_tokens=200)
        groups.pull(request, node, 0.0)
        groups.learn_answer(request, 90, {"n0": 9.0, "n1": 3.0}[node], is_cut=False)
        groups.finish(request)
    slow, fast = groups.add("r2", max_tokens=200), groups.add("r3", tenant="t", max_tokens=200)
    groups.pull(slow, "n0", 0.0)
    groups.pull(fast, "n1", 0.0)
    rest = [groups.load(groups.group_of(one), now=2.0).running_output_tokens for one in (slow, fast)]
    assert rest == [pytest.approx(90 - 2 * 10), pytest.approx(90 - 2 * 30)]


def test_those_who_were_evicted_have_nothing_to_compute_again() -> None:
    groups = taught(30, 90)
    requests = [groups.add(f"r{number}", prompt_tokens=10, max_tokens=200) for number in range(2)]
    for request in requests:
        groups.pull(request, "n0", 0.0)
    groups.evict(requests[0], kv_tokens=30, output_tokens=20)
    group = groups.evict(requests[1], kv_tokens=60, output_tokens=50)
    load = groups.load(group, now=9.0)
    assert (load.kv_at, load.kv_tokens, load.mean_prompt_tokens) == ("n0", 90.0, 0.0)
    assert load.mean_output_tokens == pytest.approx(90 - 35), "35 of them drawn on average"
    assert load.max_tokens == 200 - 35


def test_a_further_attempt_has_less_to_draw() -> None:
    groups = taught(30, 90)
    request = groups.add("r0", max_tokens=200)
    groups.pull(request, "n0", 0.0)
    groups.take_out(request)
    request.attempt, request.prompt_tokens, request.done_tokens = 1, 58, 50
    load = groups.load(groups.join(request, 1.0), now=1.0)
    assert load.mean_prompt_tokens == 58.0
    assert load.mean_output_tokens == pytest.approx(40)


def test_what_comes_is_described_anew_where_the_flow_or_its_lengths_have_changed() -> None:
    """What is kept equals what somebody computes who has kept nothing."""
    groups = taught(40)

    def typical() -> RequestShape:
        [(shape, flow)] = groups.expected_newcomers("a")
        fresh = Loads(groups.state.requests, Lengths(groups.state.lengths), TokenRates(groups.state.paces))
        assert shape == fresh.typical(flow)
        return shape

    first = typical()
    assert typical() is first
    request = groups.add("r0", prompt_tokens=80)
    second = typical()
    assert second.mean_prompt_tokens > first.mean_prompt_tokens
    groups.learn_answer(request, 90, 0.0, is_cut=False)
    assert typical().mean_output_tokens > second.mean_output_tokens


def test_no_more_kinds_are_kept_than_are_remembered() -> None:
    groups = MadeGroups(LARGE)
    for number in range(MAX_FLOWS + 2):
        groups.add(f"r{number}", model=f"m{number}")
        list(groups.expected_newcomers(f"m{number}"))
    assert len(groups._loads._typical) <= MAX_FLOWS
