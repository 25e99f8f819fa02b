"""Greedy and priced admission, and what host memory could take, worked by hand: blocks of 4 tokens."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.kv_costs import KvCosts, MoveRates
from gpu_node.engine.memory.forecast import KvDemand
from gpu_node.engine.steps.admission.admission_forms import steps_until_full
from gpu_node.engine.steps.scheduler import Scheduler
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost
from tests.gpu_node.bookkeeping import model, payload, prompt, result, step, teach_short_outputs


def make(num_blocks: int, num_host_blocks: int = 0, costs: KvCosts | None = None, **given: Any) -> Scheduler:
    options = EngineOptions(block_size=4, step_tokens=16, max_num_seqs=4, host_kv_bytes=1, **given)
    return Scheduler(model(num_blocks, 4, 64, num_host_blocks), options, costs=costs)


def num_begun(one: Scheduler, *prompt_tokens: int, max_tokens: int = 20) -> int:
    """How many of these run after their prompts could all be computed."""
    for number, num_tokens in enumerate(prompt_tokens):
        assert one.add(payload(str(number), prompt(num_tokens, first=7 * number), max_tokens)) == []
    for _ in range(3):
        step(one)
    return one.num_running


def test_greedy_looks_at_the_tokens_so_far() -> None:
    """Three prompts of a block each; each may become 6 blocks."""
    assert num_begun(make(7, admission="peak"), 4, 4, 4) == 1
    assert num_begun(make(7, admission="greedy"), 4, 4, 4) == 3


def test_greedy_does_not_give_a_block_twice_while_a_prompt_is_computed_in_chunks() -> None:
    """The first prompt takes 5 of 6 blocks in two steps; the second needs 2."""
    one = make(6, admission="greedy")
    one.add(payload("a", prompt(20), 4))
    one.add(payload("b", prompt(8, first=40), 4))
    step(one)
    assert (one.num_running, one.num_waiting) == (1, 1)
    step(one)
    assert (one.num_running, one.num_waiting) == (1, 1)


@pytest.mark.parametrize(("step_s", "num_running"), [(0.140, 1), (0.150, 2)])
def test_priced_weighs_what_a_row_earns_against_giving_way(step_s: float, num_running: int) -> None:
    """Two of 4 tokens that grow by 19 in 7 blocks. Half of each last block is taken to be empty: 31 slots less 2 × 2
    and 8 tokens leave 9 steps. Then the second has 13 tokens: 13 rows of 100 ms again, beside twice 9 steps by 2
    rows."""
    options = EngineOptions(block_size=4, step_tokens=16, max_num_seqs=4, admission="priced")
    costs = KvCosts(options, 1024, CostLearner(StepCost(step_s, 0.1, 0.0)), MoveRates())
    assert num_begun(make(7, costs=costs, admission="priced"), 4, 4) == num_running


def test_where_memory_runs_out_is_on_a_straight_line() -> None:
    demands = [KvDemand(4, 19), KvDemand(4, 2)]
    assert steps_until_full(demands, 4, 2) == 0
    assert steps_until_full(demands, 4, 3) == 1
    assert steps_until_full(demands, 4, 4) == 13, "the second has ended after 2 steps: 19 - 2 - 4"
    assert steps_until_full(demands, 4, 6) is None


def test_swap_only_admits_what_host_memory_could_take_and_computes_nothing_again() -> None:
    """Requests of 3 blocks at their limit: two of them may be in 6 host blocks; in 5, one."""
    for num_host_blocks, num_running in ((6, 2), (5, 1)):
        one = make(20, num_host_blocks, preemption="swap_only", admission="greedy")
        assert num_begun(one, 4, 4, 4, max_tokens=8) == num_running


def test_prompts_alone_keep_decodes_waiting() -> None:
    one = make(20, chunked_prefill=False)
    one.add(payload("a", prompt(4), 8))
    assert step(one)[0] == [(0, 0, 4, True)]
    one.add(payload("b", prompt(20, first=30), 8))
    assert step(one)[0] == [(1, 0, 16, False)]
    assert step(one)[0] == [(1, 16, 4, True)]
    assert step(one)[0] == [(0, 4, 1, True), (1, 20, 1, True)]


@pytest.mark.parametrize("order", ["fair", "slack"])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_long_request_is_served_although_short_ones_keep_coming(order: str, chunked: bool) -> None:
    """A new short one each step, for as long as it takes; the long one needs most of the memory."""
    one = make(8, 8, order=order, admission="greedy", preemption="swap", chunked_prefill=chunked)
    teach_short_outputs(one)
    one.add(payload("long", prompt(20), 8))
    for number in range(400):
        if number % 2 == 0:
            one.add(payload(f"short-{number}", prompt(3, first=number), 2))
        plan = one.schedule(now=float(number))
        one.check()
        chunks = [] if plan.is_empty else one.commit(plan, result(plan))
        if any(chunk.is_last for chunk in chunks if chunk.request_id == "long"):
            return
    raise AssertionError("the long one starves")
