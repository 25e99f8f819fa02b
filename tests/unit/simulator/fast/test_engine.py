"""The fast engine decides as the live bookkeeping does, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.steps.admission.typical_request import TypicalRequest
from services.simulator.devices.span import StepSpan
from services.simulator.fast.admission import batch_demands
from services.simulator.fast.decode_batch import DecodeBatch
from services.simulator.fast.sequence import FastSequence
from shared.config.engines.engine import EngineOptions, Preemption
from tests.unit.simulator.engine_life import COST, KV_BYTES_PER_S, Ask, Driver, Life, fast, options, payload, stepped


def both(asks: list[Ask], num_blocks: int, max_num_seqs: int = 4, step_tokens: int = 16) -> tuple[Life, Life]:
    """With what is dropped computed again."""
    return both_with(asks, options(num_blocks, max_num_seqs, step_tokens))


def both_with(
    asks: list[Ask], engine_options: EngineOptions, kv_bytes_per_s: float = KV_BYTES_PER_S
) -> tuple[Life, Life]:
    """Each with a list of its own, since answers may be redrawn."""
    slow_asks, fast_asks = list(asks), list(asks)
    slow_life = Driver(stepped(slow_asks, engine_options, kv_bytes_per_s), slow_asks).live()
    return slow_life, Driver(fast(fast_asks, engine_options, kv_bytes_per_s), fast_asks).live()


def assert_same(slow_life: Life, fast_life: Life) -> None:
    assert replace(fast_life, num_events=0) == replace(slow_life, num_events=0)


def test_one_request_is_two_events() -> None:
    """A prefill, and a span of all its decodes."""
    slow_life, fast_life = both([Ask(0, prompt_tokens=8, answer_tokens=21, max_tokens=40)], num_blocks=16)
    assert_same(slow_life, fast_life)
    assert (slow_life.num_events, fast_life.num_events) == (21, 2)
    assert fast_life.seen["0"].reason == "stop"
    assert fast_life.seen["0"].first_token_s == COST.predict_s(8, 8, 36)


def test_a_newcomer_cuts_a_span_behind_the_step_that_runs() -> None:
    asks = [Ask(0, 4, 30, 40), Ask(7, 4, 30, 40)]
    slow_life, fast_life = both(asks, num_blocks=32)
    assert_same(slow_life, fast_life)
    assert fast_life.num_events == 5  # prefill, cut span, prefill, first ends, second ends


def test_blocks_run_out_and_the_newest_gives_way() -> None:
    asks = [Ask(0, 5, 20, 50), *(Ask(1, 5, 40, 50) for _ in range(3))]
    # the first answer was short, so outputs are taken to be shorter than they are
    slow_life, fast_life = both([Ask(0, 4, 2, 50), *asks], num_blocks=16)
    assert_same(slow_life, fast_life)
    assert fast_life.num_preemptions > 0


def test_an_evicted_request_goes_on_without_computing_anything_again() -> None:
    asks = [Ask(0, 8, 30, 40, evicted_after_ticks=3, out_ticks=20)]
    slow_life, fast_life = both(asks, num_blocks=32)
    assert_same(slow_life, fast_life)
    assert fast_life.num_kept_tokens == 8 + 5  # the token drawn last is not computed yet
    assert fast_life.num_events == 4  # prefill, cut span, the step behind the way back, the rest


def test_a_redrawn_answer_ends_behind_the_step_that_runs() -> None:
    """After 7 ticks of two steps each, less what contexts cost, 12 tokens of 30 are drawn, and another one runs."""
    longer, shorter, too_short = (
        both([Ask(0, 4, 30, 60, redrawn_after_ticks=7, redrawn_tokens=tokens)], num_blocks=32) for tokens in (40, 20, 2)
    )
    for slow_life, fast_life in (longer, shorter, too_short):
        assert_same(slow_life, fast_life)
        assert fast_life.num_events == 3  # prefill, cut span, the rest
        assert fast_life.seen["0"].reason == "stop"
    num_tokens = [fast_life.seen["0"].num_tokens for _, fast_life in (longer, shorter, too_short)]
    assert num_tokens == [40, 20, 14]


def test_tokens_that_were_not_told_are_counted_without_being_told() -> None:
    asks = [Ask(0, 4, 30, 60), Ask(0, 4, 30, 60)]
    engine = fast(asks, options(num_blocks=32, max_num_seqs=1))
    for number, ask in enumerate(asks):
        engine.add(payload(number, ask))
    end_s = engine.start(0.0)
    (first,) = engine.finish()
    assert len(first.token_ids) == 1
    engine.start(end_s)
    now = end_s + 5.5 * COST.predict_s(1, 5, 5)  # contexts grow: the sixth step is not over
    assert engine.num_untold_tokens(now) == {"0": 5, "1": 0}
    (told,) = engine.flush(now)
    assert (told.start, len(told.token_ids)) == (1, 5)
    assert engine.num_untold_tokens(now) == {"0": 0, "1": 0}


def test_those_who_end_in_one_step_end_in_any_order() -> None:
    """Ten answers of seven tokens on average, a whole number but for the last digits, decide who is admitted."""
    lengths = (1, 1, 2, 2, 7, 12, 12, 7, 7, 19)
    workload = [Ask(0, 1, num_tokens, num_tokens) for num_tokens in lengths]
    workload += [Ask(48, 20, 4, 9), Ask(43, 28, 1, 7, evicted_after_ticks=0, out_ticks=8)]
    assert_same(*both(workload, num_blocks=16, max_num_seqs=2, step_tokens=6))


def asks(most_ticks: int) -> st.SearchStrategy[list[Ask]]:
    ask = st.builds(
        Ask,
        at_tick=st.integers(0, most_ticks),
        prompt_tokens=st.integers(1, 30),
        answer_tokens=st.integers(1, 40),
        max_tokens=st.integers(1, 33),
        leaves_after_ticks=st.one_of(st.none(), st.integers(0, 40)),
        evicted_after_ticks=st.one_of(st.none(), st.integers(0, 30)),
        out_ticks=st.integers(0, 20),
        redrawn_after_ticks=st.one_of(st.none(), st.integers(0, 40)),
        redrawn_tokens=st.integers(1, 40),
    )
    return st.lists(ask.map(redrawn_longer_if_evicted), min_size=1, max_size=14)


def redrawn_longer_if_evicted(ask: Ask) -> Ask:
    """Who is out and has had all of its answer meanwhile may be told so at once, or by one token more."""
    is_evicted = ask.evicted_after_ticks is not None
    return replace(ask, redrawn_tokens=max(ask.answer_tokens, ask.redrawn_tokens)) if is_evicted else ask


@settings(max_examples=150, deadline=None)
@given(asks(60), st.integers(16, 40), st.integers(1, 6), st.sampled_from([6, 16, 64]))
def test_both_engines_give_every_request_the_same_times(
    workload: list[Ask], num_blocks: int, max_num_seqs: int, step_tokens: int
) -> None:
    assert_same(*both(workload, num_blocks, max_num_seqs, step_tokens))


PRESSURE = [Ask(0, 4, 2, 50), Ask(0, 5, 20, 50), *(Ask(1, 5, 40, 50) for _ in range(3))]
"""The first answer is short, so that outputs are taken to be shorter than they are, and blocks run out."""


@pytest.mark.parametrize("overlap_swaps", [True, False])
def test_blocks_run_out_and_the_newest_is_swapped(*, overlap_swaps: bool) -> None:
    """In the computing queue, or beside the steps."""
    slow_life, fast_life = both_with(PRESSURE, options(16, 4, 16, "swap", 16, overlap_swaps=overlap_swaps))
    assert_same(slow_life, fast_life)
    assert fast_life.swapped.num_restored == fast_life.num_preemptions > 0


def test_without_room_in_host_memory_it_is_computed_again() -> None:
    slow_life, fast_life = both_with(PRESSURE, options(16, 4, 16, "swap", 3))
    assert_same(slow_life, fast_life)
    assert fast_life.swapped.num_refused > 0


@pytest.mark.parametrize("overlap_swaps", [True, False])
def test_adaptive_takes_whichever_is_cheaper(*, overlap_swaps: bool) -> None:
    """Fast copies are always cheaper, slow ones never; between them it hangs on the length, or on what fits beside."""
    found = []
    for kv_bytes_per_s in (2.0**34, 2.0**25, 2.0**20):
        engine_options = options(16, 4, 16, "adaptive", 16, overlap_swaps=overlap_swaps)
        slow_life, fast_life = both_with(PRESSURE, engine_options, kv_bytes_per_s)
        assert_same(slow_life, fast_life)
        found.append((fast_life.num_preemptions, fast_life.swapped.num_restored))
    (num_fast, num_fast_swapped), _, (_, num_slow_swapped) = found
    assert num_fast == num_fast_swapped > 0
    assert num_slow_swapped == 0


@settings(max_examples=150, deadline=None)
@given(
    asks(60),
    st.integers(16, 24),
    st.integers(2, 6),
    st.sampled_from([6, 16, 64]),
    st.sampled_from(["swap", "adaptive"]),
    st.integers(1, 24),
    st.booleans(),
    st.booleans(),
    st.sampled_from([2.0**24, 2.0**25, 2.0**27]),
)
def test_both_engines_give_every_request_the_same_times_with_swaps(
    workload: list[Ask],
    num_blocks: int,
    max_num_seqs: int,
    step_tokens: int,
    preemption: Preemption,
    num_host_blocks: int,
    overlap_swaps: bool,
    lazy_swaps: bool,
    kv_bytes_per_s: float,
) -> None:
    engine_options = options(
        num_blocks,
        max_num_seqs,
        step_tokens,
        preemption,
        num_host_blocks,
        overlap_swaps=overlap_swaps,
        lazy_swaps=lazy_swaps,
    )
    assert_same(*both_with(workload, engine_options, kv_bytes_per_s))


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 29), st.integers(0, 20)), min_size=1, max_size=8),
    st.lists(st.integers(1, 40), max_size=5),
)
def test_a_batch_grows_as_its_sequences_do(shapes: list[tuple[int, int, int]], ended: list[int]) -> None:
    """Each has a prompt, known tokens behind it, and a limit above both."""
    model = LoadedModel("m", 16, 4, 1, 64, 256, frozenset())
    batch, typical = DecodeBatch(model.block_size), TypicalRequest(model)
    for num_output_tokens in ended:
        typical.on_finish(num_output_tokens)
    expected = []
    for number, (prompt_tokens, output_tokens, more_tokens) in enumerate(shapes):
        num_tokens = prompt_tokens + output_tokens
        ask = payload(number, Ask(0, prompt_tokens, 1, output_tokens + more_tokens + 4))
        sequence = FastSequence.of(ask, number, model.max_model_len, 1, None)
        sequence.offset, sequence.rank = num_tokens, number
        batch.join(sequence)
        expected.append((typical.growth(num_tokens + 3, prompt_tokens, sequence.max_len), num_tokens + 3))
    batch.advance(3)
    assert batch_demands(batch, typical) == expected


def test_steps_of_a_span_grow_by_its_contexts() -> None:
    span = StepSpan(start_s=1.0, cost=COST, num_sequences=2, num_context_tokens=10, num_steps=4)
    times = [1.0]
    for step in range(4):
        times.append(times[-1] + COST.predict_s(2, 10 + 2 * step, 10 + 2 * step))
    assert [span.end_s(num_steps) for num_steps in range(5)] == times
    assert [span.num_ended(time_s) for time_s in times] == [0, 1, 2, 3, 4]
    assert span.num_ended(times[2] - 2.0**-30) == 1
