"""From a row of logits to a token. Draws depend on the logits, the seed and the position, on nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_node.engine.plan import Draw
from gpu_node.executors.counter import uniform
from shared.messages import Sampling

_NUCLEUS_GUESS_TOKENS = 512
"""A nucleus is nearly always smaller than this, so the whole vocabulary is rarely sorted."""


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """One token for each row of ``logits`` [draws, vocabulary]; None where the logits are not finite.

    Temperature 0 takes the most likely token, the lowest id among equals.
    """
    assert len(logits) == len(draws)
    tokens: list[int | None] = []
    # a NaN or an infinity anywhere in a row shows in its sum
    finite = logits.sum(dim=-1).isfinite().tolist()
    greedy = logits.argmax(dim=-1).tolist()
    for row, draw in enumerate(draws):
        if not finite[row]:
            tokens.append(None)
        elif draw.sampling.temperature == 0:
            tokens.append(greedy[row])
        else:
            tokens.append(_draw(logits[row], draw))
    return tokens


def _draw(logits: torch.Tensor, draw: Draw) -> int:
    """Inverse of the cumulative distribution, in the order of token ids, at one uniform number."""
    # the largest is taken off first, so that the smallest temperature does not overflow
    scaled = (logits - logits.max()).double() / draw.sampling.temperature
    probabilities = scaled.softmax(dim=-1)
    threshold = _threshold(probabilities, draw.sampling)
    kept = torch.where(probabilities >= threshold, probabilities, 0.0)
    cumulative = kept.cumsum(dim=-1)
    target = uniform(draw.sampling.seed, draw.position) * cumulative[-1]
    # first token whose cumulative probability is above the target: never one of probability 0
    return int(torch.searchsorted(cumulative, target, right=True))


def _threshold(probabilities: torch.Tensor, sampling: Sampling) -> float:
    """Least probability that a kept token has: the strictest of top-k, top-p (among the top k) and min-p.

    A threshold instead of a set of tokens: what is kept does not hang on the order in which equals were sorted, and
    tokens that tie with the last one kept are kept too.
    """
    threshold = sampling.min_p * float(probabilities.max())
    num_tokens = len(probabilities)
    num_kept = min(sampling.top_k or num_tokens, num_tokens)
    if num_kept < num_tokens:
        top = probabilities.topk(num_kept).values
        threshold = max(threshold, float(top[-1]))
    elif sampling.top_p < 1:
        top = probabilities.topk(min(_NUCLEUS_GUESS_TOKENS, num_tokens)).values
        if float(top.sum()) < sampling.top_p:
            top = probabilities.sort(descending=True).values
    else:
        return threshold
    if sampling.top_p < 1:
        # the smallest set of most likely tokens with at least top_p of the probability that top-k has left
        target = sampling.top_p * (float(top.sum()) if num_kept < num_tokens else 1.0)
        num_nucleus = int((top.cumsum(dim=-1) < target).sum()) + 1
        threshold = max(threshold, float(top[min(num_nucleus, len(top)) - 1]))
    return threshold
