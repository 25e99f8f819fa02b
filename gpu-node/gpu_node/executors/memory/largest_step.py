"""The step that takes most memory: run once at load, it shows what has to be left beside weights and KV."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from shared.config.engines.engine import EngineOptions
from shared.files.encoder import step_rows
from shared.messages.requests.payload import Sampling

NUM_TOP = 20
"""Logprobs of each draw: the most that the REST API gives."""
_SAMPLING = Sampling(max_tokens=1, top_k=50, top_p=0.9, presence_penalty=1.0, repetition_penalty=1.1)


def largest_step(model: LoadedModel, options: EngineOptions) -> StepPlan:
    """All tokens that a step may have, in as many sequences as may run, each of full length; all draw, in every way.

    Those with more than one row come last, as behind decodes. All lie in the blocks of one sequence: the numbers that
    come out mean nothing. Those of an encoder are whole texts, whose last token is followed by none with a position.
    """
    longest = model.max_model_len - model.is_encoder
    most_rows = step_rows(options, is_encoder=model.is_encoder)
    num_sequences = min(options.max_num_seqs, most_rows)
    num_rows = [1] * num_sequences
    num_left = most_rows - num_sequences
    for number in reversed(range(num_sequences)):
        num_more = min(num_left, longest - 1)
        num_rows[number] += num_more
        num_left -= num_more
    table = tuple(range(-(-model.max_model_len // model.block_size)))
    return StepPlan(
        tuple(
            ScheduledSequence(number, (0,) * rows, 0 if model.is_encoder else longest - rows, table, (_draw(number),))
            for number, rows in enumerate(num_rows)
        ),
        model=model.name,
    )


def _draw(number: int) -> Draw:
    return Draw(number, _SAMPLING, 0, num_top=NUM_TOP, prompt_token_ids=(0,))
