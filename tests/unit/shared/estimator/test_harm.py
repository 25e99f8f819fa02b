"""What the size of a batch costs the promises of those in it, by hand."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.estimator.batching import Batching, batching
from shared.estimator.harm import MAX_LATE, PromisedEnd, harmless_batch, late_by_batch, late_share, next_size, paced
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost

SHAPE = RequestShape(model="a", mean_prompt_tokens=5.0, mean_output_tokens=10.0)


def make_node(step_s: float = 0.1, token_s: float = 0.01) -> NodeState:
    rate = ModelRate("a", StepCost(step_s, token_s, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=1.0)
    return NodeState("n0", "a", max_num_seqs=40, rates=[rate])


def work_of(std_tokens: float = 0.0, step_s: float = 0.1) -> Batching:
    return batching(make_node(step_s), msgspec.structs.replace(SHAPE, std_output_tokens=std_tokens))


def test_the_share_of_late_answers_is_that_of_a_log_normal_length() -> None:
    """Mean 10 and deviation 10: ln n has variance ln 2 and mean ln 10 - ln 2 / 2; 10 tokens are √ln 2 / 2 σ more."""
    work = work_of(std_tokens=10.0)
    assert late_share(work, 10 / math.sqrt(2), math.inf, 1.0) == pytest.approx(0.5)
    assert late_share(work, 10.0, math.inf, 1.0) == pytest.approx(0.3386, abs=1e-4), "Φ(-0.4163)"
    assert late_share(work, math.inf, math.inf, 1.0) == 0.0
    assert late_share(work, math.inf, 0.5, 1.0) == 1.0
    assert late_share(work, 10.0, math.inf, 0.0) == 0.0, "an empty step may be learnt to cost nothing"
    assert late_share(work, 0.0, math.inf, 0.0) == 1.0


def test_harm_is_what_is_late_beside_a_batch_in_which_the_weights_take_half() -> None:
    """A step and a prompt are 0.15 s: of 2.655 s, 0.2505 s are left for each of 10 tokens: 0.1 + 0.01 r, r = 15.

    Of 1.0 s, 0.085 s are left for each: less than the weights take, which no other batch helps.
    """
    work = work_of()
    assert [late_by_batch(work, [(2.655, math.inf)], number) for number in (15, 16)] == [0.0, 1.0]
    assert late_by_batch(work, [(1.0, math.inf)], 20) == 0.0
    assert late_by_batch(work, [(math.inf, math.inf)], 40) == 0.0
    assert late_by_batch(work, [], 40) == 0.0


def test_the_harmless_batch_is_the_last_before_more_than_a_twentieth_are_late() -> None:
    """3.605 s leave 0.3455 s for each of 10 tokens: 0.1 + 0.01 r, a batch of 24.

    Sizes are tried 15 % apart: one more beside 23 harms nobody; beside 26, which is tried next, it does. Two minutes
    bound nothing.
    """
    assert harmless_batch(work_of(), [(3.605, math.inf), (3600.0, math.inf)]) == 26
    assert harmless_batch(work_of(), [(120.0, math.inf)]) is None


@given(
    st.lists(st.tuples(st.floats(0.1, 120.0), st.sampled_from([0.15, 0.3, math.inf])), max_size=3),
    st.floats(0.0, 30.0),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_the_size_that_is_found_by_halves_is_the_first_of_all_that_does_harm(
    promised: list[PromisedEnd], std_tokens: float, step_s: float
) -> None:
    work = work_of(std_tokens, step_s)
    sizes, size = [], 1
    while size < work.batch:
        sizes.append(size)
        size = next_size(size)
    harmful = (size for size in sizes if late_by_batch(work, promised, size + 1) > MAX_LATE)
    assert harmless_batch(work, promised) == next(harmful, None)


def test_a_node_is_counted_with_the_batch_that_keeps_promises() -> None:
    """3.155 s leave 0.3005 s for each of 10 tokens: a batch of 20."""
    assert paced(make_node(), SHAPE, [(3.155, math.inf)]).max_num_seqs == 20
    assert paced(make_node(), SHAPE, [(120.0, math.inf)]).max_num_seqs == 40
