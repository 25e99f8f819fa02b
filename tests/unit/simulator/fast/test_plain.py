"""What the fast engine cannot do it refuses, and says what to do."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gpu_node.engine.border.model import LoadedModel
from services.simulator.fast.beginnings import MIN_KNOWN, Beginnings
from services.simulator.fast.plain import OPTIONS, SAMPLING, FastEngineError, check_options, check_request
from services.simulator.fast.roster import FastRoster
from services.simulator.fast.sequence import FastSequence
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload, Sampling
from tests.unit.simulator.engine_life import Ask, fast, options, payload

PLAIN = EngineOptions(async_scheduling=False)
MODEL = LoadedModel("m", 8, 4, 1, 64, 256, frozenset())


def asked(request_id: str, prompt: list[int], sampling: Sampling | None = None) -> Payload:
    return Payload(request_id, 0, "g", "m", prompt, sampling or Sampling(max_tokens=4))


def test_all_problems_of_options_are_told_at_once() -> None:
    wrong = EngineOptions(preemption="swap_only", host_kv_bytes=1, max_models=2, max_num_seqs=8, step_tokens=4)
    with pytest.raises(FastEngineError) as refused:
        check_options(wrong)
    assert str(refused.value) == (
        "the fast engine of simulations does not know max_models 2; preemption 'swap_only'; steps that are planned"
        " while others run (async_scheduling); batches of 8 that do not decode in one step of 4: run with the live"
        " bookkeeping: `treadle sim run --engine stepped`, `make_engine=stepped` in code"
    )
    check_options(PLAIN)


def test_what_is_named_exists() -> None:
    others = {"max_models", "order", "admission", "chunked_prefill", "tiers", "offload", "offload_control", "pipeline"}
    assert {one.name for one in fields(EngineOptions)} - OPTIONS == others
    assert {one.name for one in fields(Sampling)} - SAMPLING == {
        "stop_token_ids",
        "ignore_eos",
        "num_logprobs",
        "num_choices",
        "num_candidates",
        "is_beam",
        "constraint",
        "is_embedding",
    }
    assert {one.name for one in fields(EngineOptions)} >= OPTIONS
    assert {one.name for one in fields(Sampling)} >= SAMPLING


def test_an_engine_is_not_made_with_what_it_would_leave_out() -> None:
    with pytest.raises(FastEngineError, match="preemption 'swap_only'"):
        fast([], replace(options(16), preemption="swap_only", host_kv_bytes=1))


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        (Sampling(4, num_choices=2, num_candidates=2), "request r with num_choices 2; request r with num_candidates 2"),
        (Sampling(4, is_beam=True), "request r with is_beam True"),
        (Sampling(4, stop_token_ids=[7]), "request r with stop_token_ids [7]"),
        (Sampling(4, ignore_eos=True), "request r with ignore_eos True"),
    ],
)
def test_requests_that_are_not_plain_are_refused(sampling: Sampling, problem: str) -> None:
    engine = fast([Ask(0, 1, 1, 1)], options(16))
    with pytest.raises(FastEngineError) as refused:
        engine.add(asked("r", [1], sampling))
    assert problem in str(refused.value)
    check_request(asked("r", [1], Sampling(4, temperature=0.5, top_k=3, seed=9)))


def test_prompts_that_begin_alike_are_refused_while_blocks_would_be_shared() -> None:
    roster = FastRoster(MODEL)
    beginnings = Beginnings(MODEL.block_size, roster)
    first = asked("a", [1, 2, 3, 4, 5])
    beginnings.check(first)
    roster.add(FastSequence.of(first, 0, MODEL.max_model_len, 1, None))
    beginnings.check(first)  # another attempt of its own
    beginnings.check(asked("b", [1, 2, 3]))  # no whole block
    beginnings.check(asked("b", [1, 2, 3, 9]))
    with pytest.raises(FastEngineError, match="prompts that begin alike, such as those of requests a, c"):
        beginnings.check(asked("c", [1, 2, 3, 4]))
    beginnings.check(replace(asked("c", [1, 2, 3, 4]), partition="0f" * 16))
    roster.abort("a")
    beginnings.check(asked("c", [1, 2, 3, 4]))


def test_what_a_request_leaves_in_memory_counts_as_long_as_it_is_there() -> None:
    engine = fast([Ask(0, 8, 2, 2), Ask(0, 8, 2, 2)], options(16))
    engine.add(payload(0, Ask(0, 8, 2, 2)))
    now = 0.0
    while engine.has_work:
        now = engine.start(now)
        engine.finish()
    again = replace(payload(0, Ask(0, 8, 2, 2)), request_id="1", sampling=Sampling(max_tokens=2, seed=1))
    with pytest.raises(FastEngineError, match="such as those of requests 0, 1"):
        engine.add(again)


def test_beginnings_of_what_is_gone_are_forgotten() -> None:
    roster = FastRoster(MODEL)
    beginnings = Beginnings(MODEL.block_size, roster)
    kept = asked("kept", [1, 1, 1, 1])
    beginnings.check(kept)
    roster.add(FastSequence.of(kept, 0, MODEL.max_model_len, 1, None))
    for number in range(2 * MIN_KNOWN):
        beginnings.check(asked(str(number), [2, number, 0, 0]))
    assert len(beginnings) <= MIN_KNOWN
    with pytest.raises(FastEngineError):
        beginnings.check(asked("other", [1, 1, 1, 1]))
