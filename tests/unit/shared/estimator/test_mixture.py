"""What one request of several groups is like, and what that makes of their batch."""

from __future__ import annotations

import pytest

from shared.estimator.batching import batching, full_batch
from shared.estimator.estimator import forecast
from shared.estimator.mixture import mixture
from shared.messages.nodes.step_cost import StepCost
from tests.unit.shared.queues import group, node

STEP = StepCost(step_s=1.0, token_s=0.0, context_token_s=0.0)
SHORT = group(prompt=10, output=20, waiting=2, running=1, left=10)
LONG = group(prompt=50, output=100)


def test_each_request_counts_alike() -> None:
    """Three of 10 and 20 tokens, and one of 50 and 100: E[p²] = 700, E[o²] = 2,800."""
    mixed = mixture([SHORT, LONG])["a"]
    assert (mixed.mean_prompt_tokens, mixed.mean_output_tokens) == (20.0, 40.0)
    assert mixed.std_prompt_tokens == pytest.approx((700 - 20**2) ** 0.5)
    assert mixed.std_output_tokens == pytest.approx((2800 - 40**2) ** 0.5)


def test_what_lengths_spread_inside_a_group_is_kept() -> None:
    mixed = mixture([group(prompt=10, std_prompt=3, output=20, std=4)])["a"]
    assert (mixed.std_prompt_tokens, mixed.std_output_tokens) == pytest.approx((3.0, 4.0))


def test_each_model_has_its_own() -> None:
    mixed = mixture([SHORT, group("b", prompt=1), LONG])
    assert {model: shape.mean_prompt_tokens for model, shape in mixed.items()} == {"a": 20.0, "b": 1.0}


def test_what_was_kept_of_those_who_were_evicted_is_shared_by_all() -> None:
    evicted = group(output=20, waiting=1, kv_tokens=300, kv_at="n0")
    mixed = mixture([evicted, group(output=20, waiting=2), group(output=20, waiting=0, running=2, kv_tokens=99)])["a"]
    assert mixed.kept_tokens == 300 / 5, "what runs has its own among what it holds"


def test_a_mixture_of_nobody_is_nobody() -> None:
    assert mixture([]) == {}


# --- the batch that they share ----------------------------------------------------------------------------------------


def test_groups_of_a_model_fill_one_batch() -> None:
    """One of the mixture holds 20 + 2,800 / 80 + 15 = 70 tokens; (20 + 40) / 2 are left unused."""
    state = node(STEP, num_seqs=64, kv_tokens=1000)
    lines = forecast(state, [SHORT, LONG])
    assert [line.work.batch for line in lines] == pytest.approx([970 / 70] * 2)
    alone = [batching(state, load).batch for load in (SHORT, LONG)]
    assert alone == pytest.approx([985 / 35, 925 / 115]), "what each would fill by itself"


def test_a_group_by_itself_is_its_own_mixture() -> None:
    state = node(STEP, num_seqs=64, kv_tokens=1000, step_tokens=16)
    assert batching(state, LONG, among=full_batch(state, mixture([LONG])["a"])) == batching(state, LONG)


def test_among_others_its_own_prompts_take_the_rows_that_their_decoding_leaves() -> None:
    state = node(STEP, num_seqs=4, step_tokens=54)
    batch = full_batch(state, group(output=20))
    assert batch.num_decode_rows == 4
    assert batching(state, group(prompt=100, output=20), among=batch).chunks == 100 / (54 - 4)
