"""When the groups of a virtual queue start and end, worked out by hand."""

from __future__ import annotations

from math import log

import pytest
from msgspec.structs import replace

from shared.estimator.backlog import Backlog
from shared.estimator.batching import batching
from shared.estimator.estimator import (
    MODEL_ERROR,
    NEVER,
    Prompts,
    Wait,
    drain,
    drain_s,
    evict_s,
    forecast,
    swap_s,
    throughput,
)
from shared.estimator.wait import NOW
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import StepCost
from tests.unit.shared.queues import group, node

STEP = StepCost(step_s=1.0, token_s=0.0, context_token_s=0.0)
"""A step takes a second, whatever it holds: a batch of b brings b tokens a second."""
FOUR = node(STEP, num_seqs=4)


def starts(state: NodeState, *queue: GroupLoad) -> list[float]:
    return [one.start.mean_s for one in forecast(state, list(queue))]


# --- one group -------------------------------------------------------------------------------------------------------


def test_throughput_is_the_batch_over_the_step_and_a_small_group_is_a_small_batch() -> None:
    assert throughput(FOUR, group(waiting=100)) == 4.0
    assert throughput(FOUR, group(waiting=3)) == pytest.approx(3.0)


def test_mega_prompts_take_the_time_of_decoding() -> None:
    # a prompt of 30 rows takes 0.3 s; 10 tokens at 4 a step of 1 s take 2.5 s
    rows = node(StepCost(1.0, 0.01, 0.0), num_seqs=4)
    assert throughput(rows, group(prompt=30, output=10, waiting=9)) == pytest.approx(10 / (2.5 + 0.1 + 0.3))
    assert throughput(rows, group(prompt=3000, output=10, waiting=9)) == pytest.approx(10 / (2.5 + 0.1 + 30))


def test_a_group_drains_in_its_tokens_over_the_throughput() -> None:
    wait = drain(FOUR, group(waiting=16, output=10, std=5))
    assert wait.mean_s == 16 * 10 / 4
    # QLM: √16 · 5 / 4 = 5 s, beside what the model errs on 40 s
    assert wait.std_s == pytest.approx((5**2 + (MODEL_ERROR * 40) ** 2) ** 0.5)
    assert drain_s(FOUR, group(waiting=16, output=10, running=2, left=8)) == 40 + 2


def test_a_swap_takes_what_loading_takes() -> None:
    state = node(STEP, model="a", load_s=7.0)
    assert swap_s(state, "a", "a") == 0.0
    assert swap_s(state, "a", "b") == 7.0
    assert swap_s(state, "b", "a") == 5.0  # loaded now: as long as the last swap took
    assert swap_s(node(STEP, model=""), "", "a") == 7.0
    assert swap_s(node(STEP, model="a", load_s=0.0), "a", "b") == 0.0, "whatever the last swap took"


def test_eviction_moves_the_keys_and_values() -> None:
    assert evict_s(FOUR, group(running=2, kv_tokens=3000)) == 3.0


# --- places ----------------------------------------------------------------------------------------------------------


def test_with_free_places_one_waits_for_the_prompt_only() -> None:
    assert starts(node(StepCost(1.0, 0.01, 0.0)), group(prompt=30)) == [1.3]


def test_alone_one_begins_at_once_even_if_a_batch_is_less_than_one() -> None:
    """Long prompts take places of their own, and what is left for those who decode need not be a whole one."""
    work = replace(batching(node(STEP), group()), batch=0.99)
    assert Backlog().has_place(work)
    assert Backlog().place_and_prompt(work, 0)[0] == NOW
    assert not Backlog().with_waiting(work, 1).has_place(work)


def test_with_free_places_one_waits_for_the_prompts_before_it_and_the_step_that_runs() -> None:
    state = node(StepCost(1.0, 0.01, 0.0), num_seqs=4)
    (first,) = forecast(state, [group(prompt=30, output=10, waiting=2, running=1, left=5)])
    # half of a step with one row; then a step with its row and the prompt's, each
    assert first.start.mean_s == pytest.approx(0.505 + 1.01 + 0.3)
    assert first.last_start.mean_s == pytest.approx(0.3 + 0.51 + 1.02 + 0.3)


def test_in_a_full_steady_batch_a_place_comes_free_every_request_time() -> None:
    """Memoryless lengths of 10 tokens: 4 run, with 10 left each; one ends every 2.5 s. Then a step, for the token."""
    (line,) = forecast(FOUR, [group(output=10, std=10, waiting=9, running=4, left=40)])
    assert [line.wait_at(place).mean_s for place in range(3)] == pytest.approx([2.5 + 1, 5 + 1, 7.5 + 1])
    assert line.last_start.mean_s == pytest.approx(9 * 2.5 + 1)


def test_what_runs_counts_with_what_it_has_left() -> None:
    """All work ahead is 2 + 2 + 2 + 6 tokens, and 4 · E[O²] / 2 E[O] = 20 stay; a place costs 10 more."""
    nearly_done = group(output=10, waiting=9, running=4, left=12)
    fresh = group(output=10, waiting=9, running=4, left=38)
    (soon,), (later,) = forecast(FOUR, [nearly_done]), forecast(FOUR, [fresh])
    assert soon.wait_at(0).mean_s == pytest.approx((12 + 10 - 20) / 4 + 1)
    assert later.wait_at(0).mean_s == pytest.approx((38 + 10 - 20) / 4 + 1)
    assert soon.wait_at(3).mean_s == pytest.approx((12 + 40 - 20) / 4 + 1)


def test_where_one_runs_at_a_time_the_next_waits_for_all_of_it() -> None:
    (line,) = forecast(node(STEP, num_seqs=1), [group(output=10, waiting=3, running=1, left=6)])
    assert [line.wait_at(place).mean_s for place in range(3)] == [6 + 1, 16 + 1, 26 + 1]


def test_a_fresh_batch_of_memoryless_lengths_frees_its_first_place_after_one_request_time() -> None:
    (line,) = forecast(FOUR, [group(output=10, std=10, waiting=9)])
    assert line.wait_at(3).mean_s == pytest.approx(1.0)  # the last that has a place
    assert line.wait_at(4).mean_s == pytest.approx(2.5 + 1)


def test_groups_of_a_model_share_the_batch() -> None:
    first, second = forecast(FOUR, [group(output=10, std=10, waiting=3), group(output=10, std=10, waiting=3)])
    assert first.last_start.mean_s == second.start.mean_s == pytest.approx(1.0)
    assert second.wait_at(1).mean_s == pytest.approx(2.5 + 1)


def test_long_outputs_ahead_stay_in_the_batch_and_leave_the_rest_of_it() -> None:
    """Two of 1,000 tokens keep two places; short ones go by beside them."""
    long, short = forecast(
        FOUR, [group(output=1000, waiting=0, running=2, left=2000), group(output=10, std=10, waiting=40)]
    )
    assert long.start == Wait(0.0, 0.0)
    assert short.wait_at(1).mean_s == pytest.approx(0.5 + 1)  # half a step is still on
    assert short.wait_at(39).mean_s < 200  # not behind 2,000 tokens at 4 a second


# --- prompts of those who run ----------------------------------------------------------------------------------------


def test_who_begins_at_once_waits_for_the_prompts_of_those_who_run() -> None:
    """Until they are computed, whatever they take of the device meanwhile; then its own prompt and step, as without."""
    state = node(StepCost(1.0, 0.01, 0.0), num_seqs=4)
    load = group(prompt=30, output=10, waiting=2, running=1, left=5)
    (before,), (line,) = forecast(state, [load]), forecast(state, [load], Prompts(wait_s=3.0, work_s=2.0))
    assert line.start.mean_s == pytest.approx(before.start.mean_s + 3.0) == pytest.approx(3.0 + 0.505 + 1.01 + 0.3)
    assert line.last_start.mean_s == pytest.approx(before.last_start.mean_s + 3.0), "once, for all who begin"


def test_behind_a_full_batch_prompts_are_work_ahead() -> None:
    """What they take of the device comes to the work before a place; from then on there are none."""
    load = group(output=10, std=10, waiting=9, running=4, left=40)
    (line,) = forecast(FOUR, [load], Prompts(wait_s=3.0, work_s=2.0))
    assert [line.wait_at(place).mean_s for place in range(2)] == pytest.approx([2.5 + 2 + 1, 5 + 2 + 1])


def test_no_place_gets_free_before_they_are_computed() -> None:
    load = group(output=10, std=10, waiting=9, running=4, left=40)
    (line,) = forecast(FOUR, [load], Prompts(wait_s=9.0, work_s=2.0))
    assert [line.wait_at(place).mean_s for place in (0, 1, 3)] == pytest.approx([9 + 1, 9 + 1, 10 + 2 + 1])


def test_on_an_empty_node_prompts_that_are_left_still_come_first() -> None:
    (line,) = forecast(FOUR, [group()], Prompts(wait_s=3.0, work_s=2.0))
    assert line.place_and_prompt(0)[0] == NOW
    assert line.start.mean_s == 3.0 + 1.0


# --- spread ----------------------------------------------------------------------------------------------------------


def test_the_spread_far_behind_is_the_papers() -> None:
    (line,) = forecast(FOUR, [group(output=10, std=10, waiting=10_000, running=4, left=40)])
    far = line.wait_at(9_999)
    assert far.std_s**2 == pytest.approx(10_000 * (10 / 4) ** 2 + (MODEL_ERROR * far.mean_s) ** 2, rel=1e-3)


def test_the_first_end_of_a_full_batch_is_as_unsure_as_it_is_long() -> None:
    (line,) = forecast(FOUR, [group(output=10, std=10, waiting=9, running=4, left=40)])
    # a request time, and where in its step an end falls
    assert line.wait_at(0).std_s ** 2 == pytest.approx(2.5**2 + 1 / 12 + (MODEL_ERROR * 3.5) ** 2)


def test_lengths_that_spread_less_than_their_mean_end_together_at_first() -> None:
    """μ = 10, σ = 5: v = 1/4. The batch of four has 4 · 125 / 20 = 25 tokens left on average, a request takes 2.5 s.

    k ends vary by min(k, k / 4 + 4 (1 - 1/16) / 6) = min(k, k / 4 + 5/8) request times squared.
    """
    (line,) = forecast(FOUR, [group(output=10, std=5, waiting=9, running=4, left=40)])
    first, ninth = line.wait_at(0), line.wait_at(8)
    # 40 tokens at 4 a second, less 6.25 - 2.5 s that stay; one end. Where in its step it falls: 1/12 s²
    assert first.mean_s == pytest.approx(10 - 3.75 + 1)
    assert first.std_s**2 == pytest.approx(2.5**2 * (1 / 4 + 5 / 8) + 1 / 12 + (MODEL_ERROR * 7.25) ** 2)
    # eight more requests, nine ends
    assert ninth.mean_s == pytest.approx(10 + 20 - 3.75 + 1)
    assert ninth.std_s**2 == pytest.approx(2.5**2 * (9 / 4 + 5 / 8) + 1 / 12 + (MODEL_ERROR * 27.25) ** 2)


def test_equal_lengths_are_as_unsure_as_where_in_the_batch_they_are() -> None:
    """σ = 0: k ends vary by min(k, 4 / 6); they end in waves."""
    (line,) = forecast(FOUR, [group(output=10, waiting=9, running=4, left=20)])
    assert line.wait_at(8).std_s ** 2 == pytest.approx(
        2.5**2 * 4 / 6 + 1 / 12 + (MODEL_ERROR * line.wait_at(8).mean_s) ** 2
    )


def test_lengths_that_spread_more_than_their_mean_vary_by_the_papers_law_from_the_first_end_on() -> None:
    """μ = 10, σ = 20: v = 4, so four request times squared for each end; 4 · 500 / 20 = 100 tokens stay."""
    (line,) = forecast(FOUR, [group(output=10, std=20, waiting=9, running=4, left=110)])
    first, fifth = line.wait_at(0), line.wait_at(4)
    assert first.mean_s == pytest.approx((110 + 10 - 100) / 4 + 1)
    assert first.std_s**2 == pytest.approx(4 * 2.5**2 + 1 / 12 + (MODEL_ERROR * 6) ** 2)
    assert fifth.mean_s == pytest.approx((110 + 50 - 100) / 4 + 1)
    assert fifth.std_s**2 == pytest.approx(5 * 4 * 2.5**2 + 1 / 12 + (MODEL_ERROR * 16) ** 2)


def test_a_batch_of_unlike_groups_spreads_by_each_of_its_own() -> None:
    """Two of 10 tokens and two of 30 ± 40 run, and have 160 left, which takes 40 s. One more waits.

    A request takes (2 · 2.5 + 2 · 7.5) / 4 = 5 s. The variances of all four are 2 · 10² s², so v = 200 / (4 · 5²) = 2.
    Of what runs (2 · 100 + 2 · 2,500) / 2 over 2 · 10 + 2 · 30 tokens stay: 2,600 / 80 = 32.5 s.
    """
    short = group(output=10, waiting=0, running=2, left=20)
    long = group(output=30, std=40, waiting=1, running=2, left=140)
    _, line = forecast(FOUR, [short, long])
    assert line.wait_at(0).mean_s == pytest.approx(40 - (32.5 - 5) + 1)
    assert line.wait_at(0).std_s ** 2 == pytest.approx(2 * 5**2 + 1 / 12 + (MODEL_ERROR * 13.5) ** 2)


def test_the_last_answer_ends_as_uncertainly_as_it_is_long() -> None:
    """Alone at two seconds a token: 2 s to the first of 10 ± 5 tokens, 18 s more; or what is left of one that runs."""
    slow = node(StepCost(2.0, 0.0, 0.0), num_seqs=4)
    (waits,) = forecast(slow, [group(output=10, std=5)])
    assert waits.completion.mean_s == 2 + 18
    assert waits.completion.std_s**2 == pytest.approx(2**2 / 12 + (5 * 2) ** 2 + (MODEL_ERROR * 20) ** 2)
    (runs,) = forecast(slow, [group(output=10, std=5, waiting=0, running=1, left=7)])
    assert runs.completion.mean_s == 14
    assert runs.completion.std_s**2 == pytest.approx((5 * 2) ** 2 + (MODEL_ERROR * 14) ** 2)


def test_the_last_to_start_of_a_full_batch_is_the_last_to_end() -> None:
    """Eight of nine go first: 9 · 2.5 + 1 s. The longest of four has 10 + 10 √(2 ln 4) tokens, a second each."""
    (line,) = forecast(FOUR, [group(output=10, std=10, waiting=9, running=4, left=40)])
    assert line.completion.mean_s == pytest.approx(23.5 + 9 + 10 * (2 * log(4)) ** 0.5)


def test_a_wrong_mean_length_is_wrong_for_each_end() -> None:
    """10 ± 10 tokens by a mean that errs by 2: 0.5 s of 2.5 s, once for each of three ends; by chance 3 · 2.5² s²."""
    (line,) = forecast(FOUR, [group(output=10, std=10, error=2, waiting=9, running=4, left=40)])
    third = line.wait_at(2)
    assert third.mean_s == pytest.approx(7.5 + 1)
    assert third.std_s**2 == pytest.approx(3 * 2.5**2 + (3 * 0.5) ** 2 + 1 / 12 + (MODEL_ERROR * 8.5) ** 2)


def test_a_length_that_has_been_seen_too_seldom_is_wrong_for_all_alike() -> None:
    (line,) = forecast(FOUR, [group(output=10, error=2, waiting=1000, running=4, left=20)])
    # every one of 1,000 takes 2 / 4 s more or less
    assert line.wait_at(999).std_s == pytest.approx((1000 * 2 / 4) + 0, rel=0.05)


def test_prompts_before_ones_own_differ_each_by_itself() -> None:
    """Prompts of 30 ± 20 rows at 10 ms: 0.3 ± 0.2 s each. Three go first; then their step and one's own."""
    state = node(StepCost(1.0, 0.01, 0.0), num_seqs=4)
    (line,) = forecast(state, [group(prompt=30, std_prompt=20, output=10, waiting=4)])
    assert line.last_start.mean_s == pytest.approx(3 * 0.3 + 1.03 + 0.3)
    # four prompts' variances, and where in that step it comes
    assert line.last_start.std_s**2 == pytest.approx(4 * 0.2**2 + 1.03**2 / 12 + (MODEL_ERROR * 2.23) ** 2)


# --- other models ----------------------------------------------------------------------------------------------------


def test_a_group_of_another_model_waits_for_the_last_before_it_and_the_swap() -> None:
    ahead, behind = forecast(FOUR, [group("a", output=10, waiting=2), group("b", output=10)])
    assert ahead.completion.mean_s == 1 + 9
    assert behind.begin.mean_s == 10 + 7
    assert behind.start.mean_s == 10 + 7 + 1
    assert behind.completion.mean_s == 17 + 10


def test_groups_of_one_model_behind_each_other_need_no_second_swap() -> None:
    queue = [group("b"), group("b"), group("a")]
    assert starts(FOUR, *queue) == [7 + 1, 7 + 1, 7 + 10 + 5 + 1]


def test_running_groups_behind_a_waiting_one_of_another_model_give_way_and_come_back() -> None:
    evicted = group("a", output=10, waiting=0, running=2, left=12, kv_tokens=2000)
    head, behind = forecast(FOUR, [group("b", output=10), evicted])
    assert head.start.mean_s == 2.0 + 7 + 1
    assert behind.completion.mean_s == 2.0 + 7 + 10 + 5 + 6  # what they have left, at a second a token


def test_a_broken_model_never_starts_and_holds_nobody_up() -> None:
    state = node(STEP, broken="b")
    broken, fine = forecast(state, [group("b", waiting=9), group("a")])
    assert broken.start == broken.completion == NEVER
    assert fine.start.mean_s == 1.0
    assert (throughput(state, group("b")), drain_s(state, group("b"))) == (0.0, 0.0)


def test_a_load_that_has_begun_ends_before_anybody_begins() -> None:
    (only,) = forecast(FOUR, [group(output=10)], ready_s=3.0)
    assert only.begin == Wait(3.0, 0.0)
    assert only.start.mean_s == 3 + 1
    assert only.completion.mean_s == 3 + 10
    assert only.place_and_prompt(0)[0] != NOW


def test_another_model_waits_for_the_rest_of_that_load_and_for_its_own() -> None:
    (other,) = forecast(FOUR, [group("b", output=10)], ready_s=3.0)
    assert other.begin.mean_s == 3 + 7
    assert other.completion.mean_s == 3 + 7 + 10
    _, behind = forecast(FOUR, [group("a", output=10), group("b", output=10)], ready_s=3.0)
    assert behind.begin.mean_s == 3 + 10 + 7
