"""What splits of nodes cost the promises; by hand, and in order where loads are plain."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.estimator.splits.costs import SECONDS_WEIGHT, NodeSplit, change_cost, judged
from shared.estimator.splits.works import KindOfLoad, PhaseLoad, works_of
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost

COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0)
TOGETHER, APART = NodeSplit(0, 0, 2), NodeSplit(1, 1, 0)


def node(network_bytes_per_s: float = 1e9) -> NodeState:
    """Steps of 100 rows, batches of ten; a token's KV has 1 kB."""
    return NodeState(
        "n",
        "m",
        max_num_seqs=10,
        step_tokens=100,
        kv_bytes_per_s=1e9,
        network_bytes_per_s=network_bytes_per_s,
        rates=[ModelRate("m", COST, 0, 1_000, 0.0)],
    )


def kind(
    prompt: float, output: float, rate: float, *, start_s: float = 4.0, token_s: float = 0.05, end_s: float = math.inf
) -> KindOfLoad:
    shape = RequestShape(model="m", mean_prompt_tokens=prompt, mean_output_tokens=output)
    return KindOfLoad(shape, rate, start_s, token_s, end_s)


def cost(split: NodeSplit, *kinds: KindOfLoad, network_bytes_per_s: float = 1e9, waiting: float = 0.0) -> float:
    load = PhaseLoad(kinds, waiting)
    return judged(works_of([node(network_bytes_per_s)], load), load, split).cost


def test_apart_by_hand() -> None:
    """A prompt of 1,000 tokens takes ten steps and 1 s of rows, S = 1.1 s; one comes every 2 s, so X = 0.55, with
    κ = 1/2 * 0.55^(√4 - 1). 50 draws a second: n = 0.5 / 0.95, a step 10.526 ms. Each moves in 3 ms.
    """
    one = kind(1000, 101, 0.5)
    wait_s = 15 * (-0.45 + math.sqrt(0.45**2 + 8 * 0.275 * 0.55 * 1.1 / 60))
    answer_s = wait_s + 1.1 + 0.003 + 100 * (0.01 + 0.5 / 0.95 * 0.001)
    assert cost(APART, one) == pytest.approx(0.5 * SECONDS_WEIGHT * answer_s / (4 + 100 * 0.05), rel=2e-3)
    load = PhaseLoad([one])
    assert judged(works_of([node()], load), load, APART).num_running == pytest.approx(0.5 / 0.95)


def test_together_by_hand() -> None:
    """Each of two nodes is busy with prompts for 0.275 and draws 25 tokens a second. A step with a prompt takes 110 ms
    and 1 ms for each of n that draw, any other 10 and 1.
    """
    running = 0.0
    for _ in range(100):
        slow_s = 0.11 + running * 0.001
        busy = 0.25 * 10 * slow_s
        running = 25 / (busy / slow_s + (1 - busy) / (0.01 + running * 0.001))
    load = PhaseLoad([kind(1000, 101, 0.5)])
    assert judged(works_of([node()], load), load, TOGETHER).num_running == pytest.approx(running, rel=1e-6)


def test_long_prompts_beside_a_tight_pace_are_better_parted_and_a_small_load_is_not() -> None:
    long, chats = kind(1000, 50, 0.6, token_s=0.02), kind(100, 100, 1.0, token_s=0.02)
    assert cost(APART, long, chats) < cost(TOGETHER, long, chats)
    few = kind(100, 100, 0.01, token_s=0.02)
    assert cost(TOGETHER, few) < cost(APART, few)


def test_many_prompts_want_nodes_that_prefill_and_long_answers_nodes_that_decode() -> None:
    prompts, answers = kind(1000, 10, 1.5), kind(100, 400, 3.0)
    assert cost(NodeSplit(3, 1, 0), prompts) < cost(NodeSplit(2, 2, 0), prompts) < cost(NodeSplit(1, 3, 0), prompts)
    assert cost(NodeSplit(1, 3, 0), answers) < cost(NodeSplit(2, 2, 0), answers) < cost(NodeSplit(3, 1, 0), answers)


def test_a_network_that_is_too_slow_is_no_reason_to_part() -> None:
    long, chats = kind(1000, 50, 0.6, token_s=0.02), kind(100, 100, 1.0, token_s=0.02)
    assert cost(APART, long, chats, network_bytes_per_s=3e5) > cost(TOGETHER, long, chats)


def test_what_waits_counts_as_what_comes() -> None:
    one = kind(1000, 10, 0.5)
    assert cost(APART, one, waiting=60_000) > cost(APART, one) + 0.2


def test_a_promised_end_is_broken_by_both() -> None:
    one = kind(1000, 101, 0.5, start_s=math.inf, token_s=math.inf, end_s=1.5)
    assert cost(APART, one) > 0.49, "prompt and answer take 2 s"


@given(
    st.lists(st.tuples(st.floats(1, 5_000), st.floats(1, 1_000), st.floats(0.001, 50)), min_size=1, max_size=4),
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)).filter(any),
)
def test_whatever_comes_has_a_finite_cost(kinds: list[tuple[float, float, float]], split: tuple[int, int, int]) -> None:
    load = PhaseLoad([kind(*one) for one in kinds], 1e6, 1e6)
    works = works_of([node()], load)
    found = judged(works, load, NodeSplit(*split))
    assert 0.0 <= found.cost < math.inf
    assert 0.0 <= found.num_running <= 10.0 + 1e-9
    assert 0.0 < change_cost(works, 1, found.num_running) < math.inf


@pytest.mark.parametrize(
    ("split", "serving"),
    [((2, 0, 0), (0, 0, 2)), ((0, 2, 0), (0, 0, 2)), ((0, 1, 2), (0, 0, 2)), ((1, 0, 2), (0, 0, 3)), ((1, 1, 1),) * 2],
)
def test_where_a_phase_has_no_node_the_others_do_it(split: tuple[int, ...], serving: tuple[int, ...]) -> None:
    assert NodeSplit(*split).serving == serving


def test_nobody_comes() -> None:
    load = PhaseLoad([kind(100, 10, 0.0)])
    works = works_of([node()], load)
    assert (works, judged(works, load, APART).cost) == ([], 0.0)


def test_a_change_holds_up_those_who_run_one_after_the_other() -> None:
    """Of four, a move of 3 ms each, the mean is held up for 0.5 s + 2.5 * 3 ms, of the 9 s that it was promised."""
    works = works_of([node()], PhaseLoad([kind(1000, 101, 0.5)]))
    assert change_cost(works, 2, 4.0) == pytest.approx(2 * 4 * 0.5075 / 9)
    assert change_cost(works, 2, 0.0) == change_cost(works, 2, 1.0), "one is always there soon"


times = st.sampled_from([0.0, 1e-9, 0.001, 0.1, 10.0])
lengths = st.sampled_from([0.0, 1.0, 100.0, 5_000.0])


@given(
    step_s=times,
    row_s=times,
    context_s=st.sampled_from([0.0, 1e-7]),
    kv_bytes=st.sampled_from([0, 1_000]),
    network=st.sampled_from([0.0, 1.0, 1e9]),
    shapes=st.lists(st.tuples(lengths, lengths, times, times), min_size=1, max_size=3),
    waiting=lengths,
    rest=lengths,
    reads_ahead=st.booleans(),
)
def test_whatever_was_learnt_each_split_has_a_cost(
    step_s: float,
    row_s: float,
    context_s: float,
    kv_bytes: int,
    network: float,
    shapes: list[tuple[float, float, float, float]],
    waiting: float,
    rest: float,
    reads_ahead: bool,
) -> None:
    """Costs of steps are learnt as they come, and may be all rows' or none at all; promises may be all but nothing."""
    learnt = StepCost(step_s=step_s, token_s=row_s, context_token_s=context_s)
    rates = [ModelRate("m", learnt, 0, kv_bytes, 0.0)]
    nodes = [msgspec.structs.replace(node(network), rates=rates, reads_ahead=reads_ahead)]
    kinds = [kind(prompt, output, rate, start_s=start_s, end_s=start_s) for prompt, output, rate, start_s in shapes]
    load = PhaseLoad(kinds, waiting, rest)
    works = works_of(nodes, load, reads_ahead=reads_ahead)
    for split in (TOGETHER, APART, NodeSplit(1, 1, 1), NodeSplit(3, 1, 0)):
        found = judged(works, load, split)
        assert found.cost >= 0.0
        assert found.num_running >= 0.0
        assert not works or change_cost(works, 1, found.num_running) >= 0.0
