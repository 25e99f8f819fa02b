"""What the client hears: a chunk for what a step brings of a choice; of a ranked request, its best ones at the end."""

from __future__ import annotations

from gpu_node.engine.requests.beams import best
from gpu_node.engine.requests.chunk import LOST, OutputChunk
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from shared.messages.requests.payload import Payload
from shared.messages.requests.token_logprob import TokenLogprob


def token_chunk(
    request: EngineRequest, sequence: Sequence, logprobs: list[TokenLogprob], start: int, finish_reason: str
) -> OutputChunk:
    """The output from ``start`` on. To be made before a sequence that ends is taken out of the request."""
    return OutputChunk(
        request.request_id,
        request.payload.attempt,
        start,
        sequence.token_ids[sequence.num_prompt_tokens + start :],
        finish_reason,
        choice=sequence.choice,
        logprobs=[] if request.sampling.num_logprobs is None else logprobs,
        is_last=bool(finish_reason) and len(request.sequences) == 1,
        cached_tokens=None if start or sequence.choice else _cached_tokens(request),
    )


def embedding_chunk(request: EngineRequest, sequence: Sequence, embedding: bytes) -> OutputChunk:
    """The whole answer of a request that asks for an embedding."""
    return OutputChunk(
        request.request_id,
        request.payload.attempt,
        0,
        [],
        "stop",
        choice=sequence.choice,
        is_last=True,
        cached_tokens=_cached_tokens(request),
        embedding=embedding,
    )


def ranked_chunks(request: EngineRequest) -> list[OutputChunk]:
    """All of a ranked request that is over: one chunk a choice, best first."""
    sampling = request.sampling
    chosen = best(request.hypotheses, sampling.num_choices)
    return [
        OutputChunk(
            request.request_id,
            request.payload.attempt,
            0,
            one.token_ids,
            one.finish_reason,
            choice=choice,
            logprobs=one.logprobs if sampling.num_logprobs is not None else [],
            is_last=choice == len(chosen) - 1,
            cached_tokens=None if choice else _cached_tokens(request),
        )
        for choice, one in enumerate(chosen)
    ]


def _cached_tokens(request: EngineRequest) -> int | None:
    """What is said with its first token: of a client that has tokens, an earlier attempt's prompt was another."""
    return None if request.payload.outputs else request.num_cached_tokens


def error_chunk(payload: Payload, error: str, choice: int = 0, start: int = 0) -> OutputChunk:
    """An error ends the request with all its choices."""
    return OutputChunk(payload.request_id, payload.attempt, start, [], "error", error, choice, is_last=True)


def refusal_chunk(payload: Payload, why: str) -> OutputChunk:
    """A request that can never run, for a reason that its client can do something about."""
    return OutputChunk(payload.request_id, payload.attempt, 0, [], "refused", why, is_last=True)


def lost_chunk(payload: Payload, why: str) -> OutputChunk:
    """A request that was to go on from an image that cannot be used. Its payload does not know of all its tokens."""
    return OutputChunk(payload.request_id, payload.attempt, 0, [], LOST, why, is_last=True)


def end_chunks(payload: Payload, sequences: list[Sequence], reasons: list[str]) -> list[OutputChunk]:
    """The ends of those ``sequences`` that were complete when the attempt began; the others have an empty reason.

    With no sequences at all the client knows all ends but not yet that this attempt is over.
    """
    ended = [
        (one.choice, one.num_output_tokens, reason) for one, reason in zip(sequences, reasons, strict=True) if reason
    ]
    if not sequences:
        ended = [(0, len(payload.outputs[0].token_ids), payload.outputs[0].finish_reason)]
    last = len(ended) - 1 if all(reasons) else -1
    return [
        OutputChunk(payload.request_id, payload.attempt, start, [], reason, choice=choice, is_last=place == last)
        for place, (choice, start, reason) in enumerate(ended)
    ]
