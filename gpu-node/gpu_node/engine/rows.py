"""What the border hears of a scheduled sequence: its rows, and how the token behind them is drawn."""

from __future__ import annotations

from collections.abc import Sequence as AnySequence

from gpu_node.engine.plan import DRAWN, Draw, ScheduledSequence
from gpu_node.engine.sequence import Request, Sequence


def scheduled_rows(
    sequence: Sequence, end: int, block_table: AnySequence[int], draws: tuple[Draw, ...]
) -> ScheduledSequence:
    """The rows from what is computed up to ``end``; the last is `DRAWN` when its token is not known yet."""
    start = sequence.num_computed_tokens
    known = tuple(sequence.token_ids[start:end])
    token_ids = known if end <= len(sequence.token_ids) else (*known, DRAWN)
    return ScheduledSequence(sequence.sequence_id, token_ids, start, tuple(block_table), draws)


def draw_of(request: Request, sequence: Sequence) -> Draw:
    """How the next token of a sequence is drawn; the tokens so far go along only where penalties look at them."""
    sampling = request.sampling
    position = sequence.num_output_tokens + sequence.num_drawn_tokens
    prompt: AnySequence[int] = ()
    output: AnySequence[int] = ()
    if sampling.presence_penalty or sampling.frequency_penalty or sampling.repetition_penalty != 1.0:
        prompt = request.payload.prompt_token_ids
        # the row's own token, if it is output, is left out: it may not be known here
        output = sequence.token_ids[sequence.num_prompt_tokens :][: max(0, position - 1)]
    return Draw(sequence.sequence_id, sampling, position, sequence.choice, request.num_top, prompt, output)
