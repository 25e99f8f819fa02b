"""Which token a row of logits gives where Treadle draws and not vLLM; knows torch, and nothing of vLLM."""

from __future__ import annotations

import math

import numpy as np
import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.vllm.inside.draw_state import OwnDrawState


def drawn(row: torch.Tensor, state: OwnDrawState) -> int | None:
    """Of logits [vocabulary], by the whole output so far; None where they are no numbers."""
    output, logits, allowed = state.output_token_ids, row.float().cpu(), b""
    if state.is_constrained:
        is_allowed = logits != -math.inf
        if not bool(is_allowed.any()):
            return None
        logits, allowed = logits.where(is_allowed, 0.0), np.packbits(is_allowed.numpy(), bitorder="little").tobytes()
    draw = Draw(0, state.sampling, len(output), state.choice, None, state.prompt_token_ids, output, allowed)
    found = sample(logits, draw, output)
    return None if found is None else found.token_id
