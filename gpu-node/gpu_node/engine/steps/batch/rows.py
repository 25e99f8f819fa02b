"""The rows of a step: which a request wants, and what the border hears of them and of the draw behind them."""

from __future__ import annotations

from collections.abc import Sequence as AnySequence
from dataclasses import replace

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import DRAWN, NO_ADAPTER, Draw, ScheduledSequence
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.batch.step import Guess
from shared.messages.requests.payload import Sampling


def wanted_rows(request: EngineRequest, num_left_tokens: int) -> list[tuple[Sequence, int]]:
    """Which sequences go on in this step, and up to where. Decodes of a request go together or not at all."""
    if not request.is_forked:
        leader = request.sequences[0]
        return [(leader, min(request.num_shared_tokens, leader.num_computed_tokens + num_left_tokens))]
    missing = [one.num_missing_tokens for one in request.sequences]
    if sum(missing) > num_left_tokens and max(missing) == 1:
        return []
    wanted = []
    for sequence, num_missing_tokens in zip(request.sequences, missing, strict=True):
        num_tokens = min(num_missing_tokens, num_left_tokens)
        if num_tokens > 0:
            wanted.append((sequence, sequence.num_computed_tokens + num_tokens))
            num_left_tokens -= num_tokens
    return wanted


def scheduled_rows(
    sequence: Sequence,
    end: int,
    block_table: AnySequence[int],
    draws: tuple[Draw, ...],
    guesses: AnySequence[Guess] = (),
    *,
    is_remote: bool,
    adapter: int = NO_ADAPTER,
) -> ScheduledSequence:
    """The rows from what is computed up to ``end``, then those of ``guesses``.

    The last is `DRAWN` when its token is not known yet.
    """
    start = sequence.num_computed_tokens
    known = tuple(sequence.token_ids[start:end])
    token_ids = known if end <= len(sequence.token_ids) else (*known, DRAWN)
    return ScheduledSequence(
        sequence.sequence_id,
        (*token_ids, *(guess.token_id for guess in guesses)),
        start,
        tuple(block_table),
        draws,
        is_remote,
        adapter,
        num_draft_tokens=len(guesses),
    )


def num_tops(sampling: Sampling, model: LoadedModel) -> int | None:
    """`Draw.num_top` of a request: what its client asks for, and what its candidates are ranked by.

    Of a beam, as many continuations as there are beams must be left when all that end the output are taken away.
    """
    if not sampling.is_ranked:
        return sampling.num_logprobs
    num_asked = sampling.num_logprobs or 0
    if not sampling.is_beam:
        return num_asked
    return max(num_asked, sampling.num_candidates + len({*sampling.stop_token_ids, *model.eos_token_ids}))


def draw_of(request: EngineRequest, sequence: Sequence) -> Draw:
    """How the next token of a sequence is drawn; the tokens so far go along only where penalties look at them."""
    sampling = request.sampling
    position = sequence.num_output_tokens + sequence.num_drawn_tokens
    prompt: AnySequence[int] = ()
    output: AnySequence[int] = ()
    if sampling.has_penalties:
        prompt = request.payload.prompt_token_ids
        output = sequence.token_ids[sequence.num_prompt_tokens :]
    draw = Draw(sequence.sequence_id, sampling, position, sequence.choice, request.num_top, prompt, output)
    if sequence.matcher is None:
        return draw
    if sequence.num_drawn_tokens:
        return replace(draw, is_mask_late=True)
    return replace(draw, allowed=sequence.matcher.allowed)


def draws_behind(
    request: EngineRequest, sequence: Sequence, guesses: AnySequence[Guess], draw_ids: AnySequence[int]
) -> list[Draw]:
    """How the token behind each guess is drawn, should it and those before it hold, under an id of its own."""
    if not guesses:
        return []
    first = draw_of(request, sequence)
    known = list(first.output_token_ids)
    draws = []
    for number, (guess, draw_id) in enumerate(zip(guesses, draw_ids, strict=True), start=1):
        if request.sampling.has_penalties:
            known = [*known, guess.token_id]
        draws.append(
            replace(
                first,
                sequence_id=draw_id,
                position=first.position + number,
                output_token_ids=known,
                allowed=guess.allowed,
                num_draft_tokens=number,
            )
        )
    return draws
