"""What giving way costs, worked by hand: AdaptiveLLM's equations 2 to 4, and what is added beside other work."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.plan import BlockSwap, ScheduledSequence, StepPlan, StepResult
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.cost_table import CostTable, LearntRatio
from gpu_node.engine.measures.kv_costs import KvCosts, KvCostTables, MoveRates
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost

COST = StepCost(step_s=0.010, token_s=0.001, context_token_s=0.0001, attended_token_s=0.00001)
RATES = MoveRates(out_bytes_per_s=1000.0, in_bytes_per_s=2000.0)
PLAIN = EngineOptions(chunked_prefill=False, overlap_swaps=False)


def costs(options: EngineOptions, tables: KvCostTables | None = None) -> KvCosts:
    """Of blocks of 10 bytes."""
    return KvCosts(options, 10, CostLearner(COST), RATES, tables)


def test_a_swap_is_whole_blocks_over_the_bandwidth_of_each_direction() -> None:
    """3 blocks of 10 bytes: 30 / 1000 out and 30 / 2000 in (equations 2 to 4)."""
    assert costs(PLAIN).swap_s(3) == pytest.approx(0.030 + 0.015)


def test_beside_compute_only_what_outlasts_a_step_counts() -> None:
    one = costs(EngineOptions())
    assert one.swap_s(3) == pytest.approx(0.045), "no step has been seen"
    decode = StepPlan((ScheduledSequence(0, (5,), 9, (1,), ()),))
    one.observe(decode, StepResult({}, 0.020), waited_s=0.0)
    assert one.swap_s(3) == pytest.approx(0.010 + 0.0)


def test_computing_again_is_a_prompt_step_alone_or_the_rows_that_are_added() -> None:
    """4 tokens: 10 ms for the step, 4 rows, 4 tokens read, and 1 + 2 + 3 + 4 pairs."""
    rows_s = 4 * 0.001 + 4 * 0.0001 + 10 * 0.00001
    assert costs(PLAIN).recompute_s(4) == pytest.approx(0.010 + rows_s)
    assert costs(EngineOptions()).recompute_s(4) == pytest.approx(rows_s)


def test_what_stays_cached_is_free() -> None:
    """Behind 2 kept tokens: 2 rows, 4 tokens read, and 3 + 4 pairs."""
    assert costs(EngineOptions()).recompute_s(4, 2) == pytest.approx(2 * 0.001 + 4 * 0.0001 + 7 * 0.00001)


def test_what_will_be_cached_is_learnt_of_those_who_come_back() -> None:
    """Two of whom all was there, of 16 that are remembered: 1/16, then 1/16 + 15/256; half a block counts as half."""
    one = costs(PLAIN)
    assert one.num_still_cached(64) == 0
    one.observe_return(num_blocks=3, num_cached_blocks=3)
    assert (one.num_still_cached(64), one.num_still_cached(8)) == (4, 0.5)
    one.observe_return(num_blocks=5, num_cached_blocks=5)
    assert one.num_still_cached(64) == 64 * (1 / 16 + 15 / 256) == 7.75
    one.observe_return(num_blocks=0, num_cached_blocks=0)
    assert one.num_still_cached(64) == 7.75, "who held no full block tells nothing"


def test_what_is_cached_does_not_come_back() -> None:
    """3 blocks of 10 bytes out, 2 of them in."""
    at_once = EngineOptions(chunked_prefill=False, overlap_swaps=False, lazy_swaps=False)
    assert costs(at_once).swap_s(3, 1) == pytest.approx(0.030 + 0.010)


def test_what_host_memory_has_is_not_copied_again_nor_late_what_is_cached_then() -> None:
    """3 blocks of 10 bytes, of which host memory has the first two: one out, and two in, if one is cached then."""
    assert costs(PLAIN).swap_s(3, 1, 2) == pytest.approx(0.010 + 0.010)
    assert costs(PLAIN).swap_s(3, 1) == pytest.approx(0.020 + 0.010), "the cached one is not copied"


def test_who_is_swapped_in_has_no_row_in_that_step_nor_has_who_waits_behind_it() -> None:
    """Two rows took 20 ms; three rows' worth of that is added to 30 / 1000 and 30 / 2000."""
    one = costs(PLAIN)
    decode = StepPlan(tuple(ScheduledSequence(number, (5,), 9, (number,), ()) for number in range(2)))
    one.observe(decode, StepResult({}, 0.020), waited_s=0.0)
    assert one.swap_s(3) == pytest.approx(0.030 + 0.015 + 3 * 0.010)


def test_prompts_that_share_a_step_share_what_it_costs_by_itself() -> None:
    one = costs(PLAIN)
    both = StepPlan(tuple(ScheduledSequence(number, (5, 6), 0, (number,), ()) for number in range(2)))
    before_s = one.recompute_s(4)
    for _ in range(200):
        one.observe(both, StepResult({}, 0.010 + 4 * 0.001 + 4 * 0.0001 + 6 * 0.00001), waited_s=0.0)
    assert before_s is not None
    assert one.recompute_s(4) == pytest.approx(before_s - 0.005, rel=0.01)


def test_nothing_is_known_before_any_step_and_nothing_moves_where_blocks_stay() -> None:
    one = KvCosts(PLAIN, 10, CostLearner(), MoveRates(0.0, 0.0))
    assert one.recompute_s(4) is None
    assert one.swap_s(1) == float("inf")


def test_copies_in_the_computing_queue_correct_the_bandwidth() -> None:
    """A plan of one block out takes 10 ms by its rates; it is seen to take twice as long."""
    one = costs(PLAIN)
    plan = StepPlan((), swaps_out=(BlockSwap(0, 0),))
    for _ in range(300):
        one.observe(plan, StepResult({}, 0.020), waited_s=0.0)
    assert one.swap_s(1) == pytest.approx(2 * (0.010 + 0.005), rel=0.02)


def test_tables_are_straight_between_points_and_beyond_them() -> None:
    table = CostTable((0.0, 10.0, 20.0), (1.0, 3.0, 4.0))
    assert [table.at(size) for size in (0, 5, 10, 20, 30)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert CostTable((1.0, 2.0), (1.0, 3.0)).at(0) == 0.0, "no cost is negative"


@pytest.mark.parametrize(("sizes", "seconds"), [((1.0,), (1.0,)), ((1.0, 2.0), (1.0,)), ((2.0, 2.0), (1.0, 1.0))])
def test_what_is_no_table_is_refused(sizes: tuple[float, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="size"):
        CostTable(sizes, seconds)


def test_tables_go_before_formulas_and_are_refined_by_what_steps_take() -> None:
    prompt = CostTable((0.0, 100.0), (0.010, 0.110))
    flat = CostTable((0.0, 100.0), (0.0, 0.050))
    one = costs(PLAIN, KvCostTables(prompt, flat, flat, flat))
    assert one.recompute_s(40) == pytest.approx(0.050)
    assert one.swap_s(10) == pytest.approx(0.005 + 0.005)
    alone = StepPlan((ScheduledSequence(0, tuple(range(40)), 0, (0, 1, 2), ()),))
    for _ in range(500):
        one.observe(alone, StepResult({}, 0.075), waited_s=0.0)
    assert one.recompute_s(40) == pytest.approx(0.075, rel=0.01)
    beside = costs(EngineOptions(), KvCostTables(prompt, flat, flat, flat))
    assert beside.recompute_s(40, 20) == pytest.approx(0.010)


def test_one_measurement_far_off_moves_a_ratio_little() -> None:
    ratio = LearntRatio()
    for _ in range(LearntRatio.MEMORY):
        ratio.observe(1.0, 1.0)
    ratio.observe(1000.0, 1.0)
    assert 1.0 < ratio.value < 1.06
    ratio.observe(1.0, 0.0)
    assert ratio.value < 1.06, "nothing is learnt of nothing"
