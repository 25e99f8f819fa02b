"""Schedulers of tiny models, and what the tests of bookkeeping do with them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan, StepResult
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.draft_costs import DraftCosts
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.forecast import WINDOW_REQUESTS
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.preemption import AlwaysRecompute, PreemptionPolicy
from gpu_node.engine.steps.scheduler import Scheduler
from shared.config.engines.engine import EngineOptions
from shared.config.engines.tiers import TierOptions
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Output, Payload, Sampling

EOS = 99
CHEAP_ROWS = StepCost(step_s=1.0, token_s=1e-3, context_token_s=0.0)
STEP_S = 0.01


def model(num_blocks: int = 100, block_size: int = 4, max_model_len: int = 64, num_host_blocks: int = 0) -> LoadedModel:
    return LoadedModel(
        name="m",
        num_blocks=num_blocks,
        block_size=block_size,
        block_bytes=1024,
        max_model_len=max_model_len,
        vocab_size=100,
        eos_token_ids=frozenset({EOS}),
        num_host_blocks=num_host_blocks,
    )


def scheduler(
    num_blocks: int = 100,
    block_size: int = 4,
    max_model_len: int = 64,
    step_tokens: int = 8,
    max_num_seqs: int = 4,
    policy: PreemptionPolicy | None = None,
    num_host_blocks: int = 0,
    *,
    keeps: bool = False,
    has_late_masks: bool = False,
    max_draft_tokens: int = 0,
    max_structured_tokens: int = 0,
    **given: Any,
) -> Scheduler:
    """``keeps`` copies of full blocks in host memory; ``given`` are further options.

    Of a model whose tokens are guessed, guesses are known to cost little.
    """
    tiers = TierOptions(host_bytes=int(keeps))
    options = EngineOptions(
        block_size=block_size, step_tokens=step_tokens, max_num_seqs=max_num_seqs, tiers=tiers, **given
    )
    loaded = replace(
        model(num_blocks, block_size, max_model_len, num_host_blocks),
        max_draft_tokens=max_draft_tokens,
        max_structured_tokens=max_structured_tokens,
    )
    costs = None
    if max_draft_tokens or max_structured_tokens:
        costs = KvCosts(options, loaded.block_bytes, CostLearner(CHEAP_ROWS))
        costs.drafts = cheap_guesses()
    return Scheduler(loaded, options, policy, costs=costs, has_late_masks=has_late_masks)


@cache
def cheap_guesses() -> DraftCosts:
    """What an engine has learnt where a guess adds a hundredth to a step, and no wait. Nobody teaches it more."""
    costs = DraftCosts()
    for num_sequences in (1, 2, 4, 8):
        for num_guesses in (0, 0, 6, 6) * 50:
            plain_s = CHEAP_ROWS.predict_s(num_sequences, 0)
            costs.observe(decodes(num_guesses, num_sequences), plain_s * (1 + 0.01 * num_guesses), CHEAP_ROWS)
    return costs


def decodes(num_guesses: int, num_sequences: int = 1, num_rows: int = 1) -> StepPlan:
    """A step in which the first sequence has guesses, and each computes so many tokens that are known."""
    draw = Draw(0, Sampling(max_tokens=1), 0)
    counts = [num_guesses, *[0] * (num_sequences - 1)]
    return StepPlan(
        tuple(
            ScheduledSequence(number, (1,) * (num_rows + count), 10, (0,), (draw,), num_draft_tokens=count)
            for number, count in enumerate(counts)
        )
    )


def payload(
    request_id: str, prompt: list[int], max_tokens: int = 4, output: list[int] | None = None, **sampling: object
) -> Payload:
    return Payload(
        request_id=request_id,
        attempt=0,
        gateway="g",
        model="m",
        prompt_token_ids=prompt,
        outputs=[Output(output)] if output else [],
        sampling=Sampling(max_tokens=max_tokens, **sampling),  # type: ignore[arg-type]
    )


def prompt(num_tokens: int, first: int = 0) -> list[int]:
    """Different tokens, so that nothing is shared by accident."""
    return [(first + number) % EOS for number in range(num_tokens)]


def result(plan: StepPlan, token: int = 7) -> StepResult:
    """The same token for every sequence that draws."""
    return StepResult({draw.sequence_id: token for part in plan.sequences for draw in part.draws}, STEP_S)


def shape(plan: StepPlan) -> list[tuple[int, int, int, bool]]:
    """(sequence, start, tokens, draws) of each part: what the golden cases are written in."""
    return [(part.sequence_id, part.start, len(part.token_ids), bool(part.draws)) for part in plan.sequences]


def step(one: Scheduler, token: int = 7) -> tuple[list[tuple[int, int, int, bool]], list[OutputChunk]]:
    """Plan and commit one step; check the books after both."""
    plan = one.schedule(now=0.0)
    one.check()
    chunks = one.commit(plan, result(plan, token))
    one.check()
    return shape(plan), chunks


class OldestFirst(AlwaysRecompute):
    """The opposite of the default policy: whoever asks for room may have to give way itself."""

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        return min(running, key=lambda request: request.order)


def teach_short_outputs(one: Scheduler) -> None:
    """Let the scheduler see only outputs of one token: from then on it admits too much, and has to preempt."""
    for number in range(WINDOW_REQUESTS):
        assert one.add(payload(f"short-{number}", [number % EOS], max_tokens=1)) == []
    while one.has_work:
        step(one)
