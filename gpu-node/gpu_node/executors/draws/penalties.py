"""What a request changes about the model's logits before it draws: bias and penalties."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch

from gpu_node.engine.border.plan import Draw


def adjusted_logits(logits: torch.Tensor, draw: Draw, output_token_ids: Sequence[int]) -> torch.Tensor:
    """Float32 [vocabulary], ``logits`` themselves where nothing is to be changed.

    First each bias is added; then the penalties are taken, each logit's all together in float64: repetition divides it
    where it is positive and multiplies it where it is not (Keskar et al.: CTRL, 2019, §4.1), of tokens that prompt or
    output has; frequency (times the token's occurrences) and presence are taken off, of tokens that the output has.
    """
    sampling = draw.sampling
    if not sampling.logit_bias and not sampling.has_penalties:
        return logits
    adjusted = logits.clone()
    for token, bias in sampling.logit_bias:
        adjusted[token] = float(adjusted[token]) + bias
    if sampling.has_penalties:
        counts = Counter(output_token_ids)
        for token in counts.keys() | set(draw.prompt_token_ids):
            logit = float(adjusted[token])
            logit = logit / sampling.repetition_penalty if logit > 0 else logit * sampling.repetition_penalty
            if counts[token]:
                logit -= sampling.frequency_penalty * counts[token]
                logit -= sampling.presence_penalty
            adjusted[token] = logit
    return adjusted
