"""What continuous batching makes of a group, worked out by hand from the step cost."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from shared.estimator.batching import (
    PRIOR_NUM_SEQS,
    PRIOR_SWAP_S,
    PRIOR_TOKENS_PER_S,
    batching,
    longest_tokens,
    most_step_tokens,
    rate_of,
    residual_tokens,
)
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost
from tests.unit.shared.queues import group, node

COST = StepCost(step_s=0.8, token_s=0.01, context_token_s=0.001)


def guessing(known: NodeState, rows: float, tokens: float) -> NodeState:
    """The same, where sequences that decode have so many rows in a step and get so many tokens by them."""
    rates = [replace(rate, decode=DecodeYield(rows, tokens)) for rate in known.rates]
    return msgspec.structs.replace(known, rates=rates)


def test_a_full_batch_shares_the_weights_and_pays_its_own_rows_and_context() -> None:
    work = batching(node(COST, num_seqs=4), group(prompt=1, output=20))
    # E[O²] / 2 E[O] = 10, so a sequence holds 11 tokens: 0.8 / 4 + 0.01 + 11 * 0.001
    assert work.token_s == pytest.approx(0.221)
    # one row that reads itself
    assert work.prompt_s == pytest.approx(0.011)
    assert work.request_s == pytest.approx(20 * 0.221 + 0.011)
    assert work.tokens_per_s == pytest.approx(20 / 4.431)


def test_keys_and_values_are_read_once_a_step_and_attended_to_by_every_row() -> None:
    read = batching(node(StepCost(0.0, 0.0, 0.001), num_seqs=4), group(prompt=100, output=20))
    assert read.token_s == pytest.approx(0.110)  # the prompt, and 10 of the output
    assert read.prompt_s == pytest.approx(0.001 * 100)
    attended = batching(node(StepCost(0.0, 0.0, 0.0, 0.001), num_seqs=4), group(prompt=100, output=20))
    assert attended.token_s == pytest.approx(0.110)
    assert attended.prompt_s == pytest.approx(0.001 * 5050)  # 1 + 2 + ... + 100


def test_what_is_found_in_a_cache_is_read_and_not_computed() -> None:
    found = replace(node(COST, num_seqs=4).rates[0], cached_share=0.4)
    some = msgspec.structs.replace(node(COST, num_seqs=4), rates=[found])
    load = group(prompt=100, output=20)
    work, whole = batching(some, load), batching(node(COST, num_seqs=4), load)
    assert work.prompt_tokens == 60
    assert work.prompt_s == pytest.approx(0.01 * 60 + 0.001 * 100)
    assert whole.prompt_s == pytest.approx(0.01 * 100 + 0.001 * 100)
    assert work.token_s == whole.token_s == pytest.approx(0.8 / 4 + 0.01 + 0.001 * 110)
    assert work.batch == whole.batch


def test_each_step_of_a_long_prompt_reads_what_is_there_by_then() -> None:
    # 4 decode, 50 of 54 rows are left: 50 tokens are read in the first step, 100 in the second
    work = batching(node(StepCost(0.0, 0.0, 0.001), num_seqs=4, step_tokens=54), group(prompt=100, output=500))
    assert work.prompt_s == pytest.approx(0.001 * (50 + 100))


def test_attention_to_prompts_grows_with_their_square() -> None:
    work = batching(node(StepCost(0.0, 0.0, 0.0, 0.001), num_seqs=4), group(prompt=100, std_prompt=50, output=20))
    assert work.prompt_s == pytest.approx(0.001 * (100**2 + 50**2 + 100) / 2)
    assert work.std_prompt_s == pytest.approx(50 * 0.1)  # one token more attends to 100


def test_the_spread_of_a_request_is_that_of_its_output_and_of_its_prompt() -> None:
    work = batching(node(StepCost(1.0, 0.1, 0.0)), group(prompt=20, std_prompt=40, output=10, std=6))
    # σ / Θ = 6 · (0.25 + 0.1 + 2 / 10) = 3.3 s; 40 · 0.1 = 4 s
    assert work.std_request_s == pytest.approx((3.3**2 + 4**2) ** 0.5)


def test_a_mean_length_that_errs_makes_a_request_err_by_its_tokens() -> None:
    work = batching(node(StepCost(1.0, 0.1, 0.0)), group(prompt=20, output=10, std=6, error=3))
    assert work.error_s == pytest.approx(3 * (0.25 + 0.1))


def test_an_answer_has_a_token_at_least() -> None:
    assert batching(node(COST), group(output=0.25)).output_tokens == 1.0


def test_the_batch_ends_where_the_kv_memory_ends() -> None:
    # a member holds 30 + 10 tokens on average, 15 more in its last block; the next, which needs 50, leaves 25 unused
    assert batching(node(COST, num_seqs=64, kv_tokens=575), group(prompt=30, output=20)).batch == 10
    assert batching(node(COST, num_seqs=8, kv_tokens=575), group(prompt=30, output=20)).batch == 8
    assert batching(node(COST, num_seqs=8, kv_tokens=10), group(prompt=30, output=20)).batch == 1


def test_outputs_that_differ_more_hold_more() -> None:
    # E[O²] = 500: 12.5 tokens
    work = batching(node(COST, num_seqs=64, kv_tokens=600), group(prompt=30, output=20, std=10))
    assert work.batch == 10


def test_prompts_that_fit_beside_the_decodes_cost_no_steps() -> None:
    free = batching(node(COST, num_seqs=4), group(prompt=50, output=20))
    tight = batching(node(COST, num_seqs=4, step_tokens=64), group(prompt=50, output=20))
    assert tight.request_s == free.request_s


def test_the_rows_of_a_step_bound_its_output_tokens() -> None:
    """Mega prompts: 981 + 19 rows an output of 20 tokens; 100 rows a step can feed 2 tokens a step, not 8."""
    work = batching(node(StepCost(1.0, 0.0, 0.0), num_seqs=8, step_tokens=100), group(prompt=981, output=20))
    assert work.num_step_tokens == pytest.approx(2.0)
    assert work.request_s == pytest.approx(20 / 2.0)
    # 981 rows at 98 a step are 10 steps; with the 19 that decode, 29 steps at 2 / 20 = 0.1 requests a step
    assert work.chunks == pytest.approx(981 / 98)
    assert work.batch == pytest.approx(0.1 * (19 + 981 / 98))


def test_a_prompt_of_several_steps_takes_a_place_that_does_not_decode() -> None:
    # 4 decode, 6 rows are left: 2 steps for a prompt of 12. 99 decodes more make 101 steps for 100 tokens
    work = batching(node(StepCost(1.0, 0.0, 0.0), num_seqs=4, step_tokens=10), group(prompt=12, output=100))
    assert work.chunks == 2.0
    assert work.num_step_tokens == pytest.approx(4 * 100 / 101)
    assert work.request_s == pytest.approx(101 / 4)


def test_where_guesses_hold_an_answer_takes_fewer_steps_with_more_rows() -> None:
    """21 tokens: one behind the prompt, and 20 by two a step, which are 11 steps. 10.5 + 1 tokens are held."""
    work = batching(guessing(node(COST, num_seqs=4), 3.0, 2.0), group(prompt=1, output=21))
    row_s = 3 * 0.01 + 11.5 * 0.001  # context is read once for all three
    assert work.num_draws == 11
    assert work.row_s == pytest.approx(row_s)
    assert work.request_s == pytest.approx(11 * (0.8 / 4 + row_s) + 0.011)
    assert work.token_s == pytest.approx(11 / 21 * (0.8 / 4 + row_s))
    assert work.num_step_tokens == pytest.approx(4 * 21 / 11)
    assert work.step_at(2) == pytest.approx(0.8 + 2 * row_s)
    assert work.pace_at(2) == work.token_at(2) == pytest.approx((0.8 + 2 * row_s) / 2)
    # four take 11 steps of a request's time each, with its prompt: a step takes 4 / 11 of that, and brings two
    assert work.token_at(4) == pytest.approx(4 * work.request_s / 11 / 2)


def test_each_row_of_a_guess_attends_to_the_context() -> None:
    work = batching(guessing(node(StepCost(0.0, 0.0, 0.0, 0.001)), 3.0, 2.0), group(prompt=100, output=21))
    assert work.row_s == pytest.approx(3 * 0.001 * 110.5)


def test_guesses_take_no_rows_from_prompts() -> None:
    """4 decode, 6 of 10 rows are left: 2 steps for a prompt of 12, and 50 more for 101 tokens by two."""
    known = guessing(node(StepCost(1.0, 0.0, 0.0), num_seqs=4, step_tokens=10), 3.0, 2.0)
    work = batching(known, group(prompt=12, output=101))
    assert work.chunks == 2.0
    assert work.request_s == pytest.approx(52 / 4)
    assert work.num_step_tokens == pytest.approx(4 * 101 / 52)


def test_guesses_that_bring_nothing_change_nothing() -> None:
    known = node(COST, num_seqs=4, step_tokens=10)
    assert batching(guessing(known, 1.0, 1.0), group(prompt=12, output=2.7)) == batching(
        known, group(prompt=12, output=2.7)
    )


def test_what_is_guessed_of_a_model_says_nothing_of_another() -> None:
    known = guessing(node(COST), 3.0, 2.0)
    assert rate_of(known, "a").decode == DecodeYield(3.0, 2.0)
    assert rate_of(known, "c").decode == DecodeYield()


def test_a_model_whose_texts_are_computed_whole_has_the_rows_of_its_own_steps() -> None:
    """Texts of 300 tokens at 1 s a step: of 256 rows, a step would have 0.85 of one; of 512 it has 1.7."""
    known = node(StepCost(1.0, 0.0, 0.0), num_seqs=8, step_tokens=256)
    rates = [replace(rate, step_tokens=512) if rate.model == "a" else rate for rate in known.rates]
    encoder = msgspec.structs.replace(known, rates=rates)
    assert [most_step_tokens(encoder, model) for model in "abc"] == [512, 256, 256]
    assert batching(known, group(prompt=300, output=1)).request_s == pytest.approx(300 / 256)
    work = batching(encoder, group(prompt=300, output=1))
    assert (work.step_tokens, work.chunks) == (512, 1.0)
    assert work.request_s == pytest.approx(300 / 512)
    assert batching(encoder, group("b", prompt=300, output=1)) == batching(known, group("b", prompt=300, output=1))


def test_an_evicted_request_holds_its_kv_but_computes_no_prompt() -> None:
    resumed = group(prompt=0, output=20, kv_tokens=300, waiting=10, kv_at="n0")
    work = batching(node(COST, num_seqs=64, kv_tokens=575), resumed)
    assert work.batch == 10  # 30 kept, and 10 on average of what comes
    assert work.prompt_s == 0.0


def test_of_requests_that_it_hands_over_a_node_computes_the_prompt_and_a_token() -> None:
    load = group(prompt=100, output=20)
    giver = msgspec.structs.replace(node(COST, num_seqs=4), hands_over=[load.model])
    work = batching(giver, load)
    assert (work.output_tokens, work.std_output_tokens, work.error_s) == (1.0, 0.0, 0.0)
    # 1 / 4 of a step that reads the weights, and a row; its 100 tokens, which read themselves
    assert work.token_s == pytest.approx(0.8 / 4 + 0.01 + 0.001 * 100.5)
    assert work.prompt_s == pytest.approx(0.01 * 100 + 0.001 * 100)
    kept = msgspec.structs.replace(load, kept_tokens=30, mean_prompt_tokens=0)
    assert batching(giver, kept) == batching(node(COST, num_seqs=4), kept), "what came with KV ends here"


def test_a_node_that_has_told_nothing_counts_as_the_prior() -> None:
    fresh = NodeState("n0", "a")
    assert batching(fresh, group("b", output=20)).tokens_per_s == pytest.approx(PRIOR_TOKENS_PER_S)
    assert batching(fresh, group("b", output=20)).batch == PRIOR_NUM_SEQS
    assert (rate_of(fresh, "a").load_s, rate_of(fresh, "b").load_s) == (0.0, PRIOR_SWAP_S)


def test_a_model_that_a_node_has_never_had_is_taken_for_the_slowest_that_it_knows() -> None:
    fast, slow = (ModelRate(name, StepCost(step_s, 0.5, 0.25), 100, 16, 9.0) for name, step_s in (("a", 1), ("b", 2)))
    known = NodeState("n0", "a", swap_s=5.0, rates=[slow, fast])
    assert rate_of(known, "c") == ModelRate("c", slow.cost, 100, 16, load_s=5.0), "it loads like the last that did"
    assert rate_of(NodeState("n0", "a", rates=[fast, slow]), "c").load_s == PRIOR_SWAP_S
    assert rate_of(NodeState("n0", "c", swap_s=5.0, rates=[fast, slow]), "c").load_s == 0.0, "it is loaded"
    assert rate_of(known, "a") == fast


def test_residual_life_of_equal_and_of_memoryless_lengths() -> None:
    assert residual_tokens(20, 0) == 10
    assert residual_tokens(20, 20) == 20
    assert residual_tokens(20, 10) == 12.5  # 500 / 40
    assert residual_tokens(20, 40) == 50.0  # 2,000 / 40


def test_the_longest_of_several() -> None:
    assert longest_tokens(100, 10, 1) == 100
    assert longest_tokens(100, 10, 7.389056) == pytest.approx(100 + 10 * 2)  # √(2 ln e²)
    assert longest_tokens(100, 10, 7.389056, limit=115) == 115
    assert longest_tokens(100, 10, 7.389056, limit=90) == 100  # the limit is a mean, too: lengths are known better
