"""Which token a row of logits gives where Treadle draws and not vLLM; knows torch, and nothing of vLLM."""

from __future__ import annotations

import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.vllm.draw_state import OwnDrawState


def drawn(row: torch.Tensor, state: OwnDrawState) -> int | None:
    """Of logits [vocabulary], by the whole output so far; None where they are no numbers."""
    output = state.output_token_ids
    draw = Draw(0, state.sampling, len(output), state.choice, None, state.prompt_token_ids, output)
    found = sample(row.float().cpu(), draw, output)
    return None if found is None else found.token_id
