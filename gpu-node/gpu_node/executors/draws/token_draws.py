"""The draws of a planned step, as devices are told of them."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_node.engine.border.plan import ScheduledSequence
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.kernels.token_draw import TokenDraw


def draws_of(feedback: Feedback, sequences: Sequence[ScheduledSequence]) -> list[TokenDraw]:
    """The draws of a step, each from its row of logits."""
    draws = []
    row = 0
    for part in sequences:
        for draw in part.draws:
            prompt: Sequence[int] = ()
            output: Sequence[int] = ()
            if draw.sampling.has_penalties:
                prompt, output = draw.prompt_token_ids, feedback.output(part, draw)
            about = draw.sampling, draw.position, draw.choice, draw.num_top
            behind = row + draw.num_draft_tokens
            draws.append(TokenDraw(behind, *about, prompt, output, draw.allowed, draw.is_mask_late))
        row += part.num_draw_rows
    return draws
