"""Waits that are predicted by what an engine tells of its guesses, beside those of its bookkeeping in virtual time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest

from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.steps.scheduler import Scheduler
from shared.estimator.estimator import forecast
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ONE_TOKEN, DecodeYield, ModelRate
from shared.messages.requests.payload import Payload
from tests.gpu_node.bookkeeping import CHEAP_ROWS, payload, scheduler

NUM_SEQS, STEP_TOKENS, NUM_BLOCKS = 4, 64, 1_000
PERIOD, ODD = 5, 11  # a text repeats itself, but for each eleventh token


def token(text: int, place: int) -> int:
    """Of one of the texts."""
    return (text * 7 + place * place) % 90 if place % ODD == 0 else 1 + (text + place % PERIOD) % 90


def requests(texts: range) -> list[Payload]:
    """Each asks for another text to go on, for 40 to 119 tokens; the seed names it."""
    return [
        payload(str(text), [token(text, place) for place in range(20)], 40 + text * 37 % 80, seed=text, ignore_eos=True)
        for text in texts
    ]


def drawn(plan: StepPlan) -> StepResult:
    """Each text goes on as it does; the step takes what its rows and context cost."""
    seconds = CHEAP_ROWS.predict_s(plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens)
    draws = [draw for part in plan.sequences for draw in part.draws]
    return StepResult({draw.sequence_id: token(draw.sampling.seed or 0, 20 + draw.position) for draw in draws}, seconds)


def waits_s(one: Scheduler, payloads: Sequence[Payload]) -> list[float]:
    """Until each has its first token, all together being run to their ends."""
    found: dict[str, float] = {}
    now = 0.0
    for each in payloads:
        assert one.add(each) == []
    while one.has_work:
        plan = one.schedule(now)
        result = drawn(plan)
        now += result.duration_s
        for chunk in one.commit(plan, result):
            found.setdefault(chunk.request_id, now)
    return [found[each.request_id] for each in payloads]


def predicted_s(decode: DecodeYield, payloads: Sequence[Payload]) -> list[float]:
    lengths = [each.sampling.max_tokens for each in payloads]
    rate = ModelRate("m", CHEAP_ROWS, NUM_BLOCKS * 4, 1, 0.0, decode=decode)
    node = NodeState("n0", "m", max_num_seqs=NUM_SEQS, step_tokens=STEP_TOKENS, rates=[rate])
    group = GroupLoad(
        "g",
        1e9,
        model="m",
        num_waiting=len(payloads),
        mean_prompt_tokens=20.0,
        mean_output_tokens=statistics.fmean(lengths),
        std_output_tokens=statistics.pstdev(lengths),
    )
    (found,) = forecast(node, [group])
    return [found.wait_at(number).mean_s for number in range(len(payloads))]


@pytest.mark.parametrize("max_draft_tokens", [0, 4])
def test_waits_are_predicted_by_what_guesses_bring(max_draft_tokens: int) -> None:
    one = scheduler(
        NUM_BLOCKS, 4, 256, step_tokens=STEP_TOKENS, max_num_seqs=NUM_SEQS, max_draft_tokens=max_draft_tokens
    )
    waits_s(one, requests(range(8)))  # by which it learns what guesses bring
    decode, payloads = one.decode_yield, requests(range(8, 40))
    true = waits_s(one, payloads)[NUM_SEQS:]
    as_told = sum(predicted_s(decode or ONE_TOKEN, payloads)[NUM_SEQS:]) / sum(true)
    as_one = sum(predicted_s(ONE_TOKEN, payloads)[NUM_SEQS:]) / sum(true)
    assert as_told == pytest.approx(1.0, abs=0.1)
    assert (decode is not None) is (max_draft_tokens > 0)
    assert (as_one > 1.5) is (max_draft_tokens > 0)
