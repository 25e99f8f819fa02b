"""From a request's continuation to what vLLM is asked."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.vllm.words.border import CoreConstraint, CoreKept, CoreRequest, OwnDraw
from shared.messages.requests.payload import BEAM_SEARCH

LACKS = (BEAM_SEARCH,)
"""What vLLM does not do here (`Sampling.needs`)."""

TICKS_PER_S = 1000
"""vLLM orders by whole numbers: promises are told apart by the millisecond."""


def lacking(request: EngineRequest) -> str:
    """Why the request cannot run in vLLM, or ``""``; of any engine: `gpu_node.engine.steps.batch.limits`."""
    if request.sampling.is_beam:
        return "this node's engine is vLLM, which has no beam search; leave use_beam_search out"
    return ""


def core_request(
    request: EngineRequest, sequence: Sequence, model: LoadedModel, kept: CoreKept | None = None
) -> CoreRequest:
    """The output of earlier attempts goes along as prompt; so much less may be drawn. ``kept``: what it begins with."""
    sampling = request.sampling
    own_draw = _own_draw(request, sequence)
    return CoreRequest(
        core_id=core_id(sequence),
        token_ids=sequence.token_ids,
        max_tokens=sequence.max_len - len(sequence.token_ids),
        stop_token_ids=_stops(request, model),
        priority=round(request.due_s * TICKS_PER_S),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        logit_bias=sampling.logit_bias,
        num_top=request.num_top,
        own_draw=own_draw,
        kept=kept,
        constrained=_constrained(request, sequence),
        adapter=request.payload.adapter,
        task=model.task,
        partition=request.payload.partition,
    )


def core_id(sequence: Sequence) -> str:
    """Never used again in the life of the process, so that what comes late hits no other."""
    return str(sequence.sequence_id)


def _stops(request: EngineRequest, model: LoadedModel) -> list[int]:
    """All that ends it: vLLM is told of no end of its own."""
    own = () if request.sampling.ignore_eos else model.eos_token_ids
    return sorted({*request.sampling.stop_token_ids, *own})


def _constrained(request: EngineRequest, sequence: Sequence) -> CoreConstraint | None:
    constraint = request.sampling.constraint
    if constraint is None:
        return None
    return CoreConstraint(constraint, sequence.token_ids[sequence.num_prompt_tokens :])


def _own_draw(request: EngineRequest, sequence: Sequence) -> OwnDraw | None:
    """Where vLLM's own draw would be another than that of an undisturbed run: else it keeps its fast sampler."""
    sampling = request.sampling
    is_random = sampling.is_seeded and sampling.temperature > 0
    if not is_random and not (sampling.has_penalties and sequence.num_output_tokens):
        return None
    return OwnDraw(sampling.seed, sequence.choice, sequence.num_prompt_tokens)
