"""From a row of logits to a token, in plain torch: the truth for every device.

A draw depends on the logits, the sampling, the mask, the tokens so far where penalties are asked for, and on (seed,
choice, position); on nothing else. In this order: bias, penalties, mask, temperature, then the filters top-k, top-p,
min-p, then the inverse of the cumulative distribution at one uniform number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.counter import uniform
from gpu_node.executors.draws.penalties import adjusted_logits
from gpu_node.executors.draws.token_mask import allowed_tokens
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a draw gave."""

    token_id: int
    logprob: TokenLogprob | None
    """None where it is not asked for."""


def sample(logits: torch.Tensor, draw: Draw, output_token_ids: Sequence[int] = ()) -> Drawn | None:
    """Draw from ``logits`` float32 [vocabulary]; None where they, or what penalties make of them, are not finite.

    ``output_token_ids``: the whole output so far, read where penalties are asked for. Temperature 0 takes the most
    likely token, the lowest id among equals. `ValueError` where the draw's mask allows no token.
    """
    adjusted = adjusted_logits(logits, draw, output_token_ids)
    if not bool(adjusted.isfinite().all()):
        return None
    if draw.allowed:  # one of them at least is finite, and what is not weighs nothing
        adjusted = adjusted.where(allowed_tokens(draw.allowed, len(logits)), -math.inf)
    token = int(adjusted.argmax()) if draw.sampling.temperature == 0 else _draw(adjusted, draw)
    return Drawn(token, None if draw.num_top is None else _logprob(logits, token, draw.num_top))


def _draw(logits: torch.Tensor, draw: Draw) -> int:
    """The first token, in the order of ids, whose cumulative weight is above the uniform part of the whole."""
    sampling = draw.sampling
    wide = logits.double()
    most = float(wide.max())
    # the largest is taken off first, so that the smallest temperature does not overflow
    weights = ((wide - most) / sampling.temperature).exp()
    kept = torch.where(wide >= _least_kept(logits, weights, most, sampling), weights, 0.0)
    cumulative = kept.cumsum(dim=-1)
    target = uniform(sampling.seed, draw.position, draw.choice) * cumulative[-1]
    index = int(torch.searchsorted(cumulative, target, right=True))
    return min(index, int(kept.nonzero()[-1]))  # the target may be rounded up to the whole


def _least_kept(logits: torch.Tensor, weights: torch.Tensor, most: float, sampling: Sampling) -> float:
    """The least logit that all filters keep: the strictest of top-k, top-p (among the top k) and min-p.

    A bound instead of a set of tokens: what is kept does not hang on the order in which equals were sorted, and tokens
    that tie with the last one kept are kept too.
    """
    least = most + sampling.temperature * math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf
    if sampling.top_k == 0 and sampling.top_p >= 1:
        return least
    top, order = logits.sort(descending=True)
    top = top[: sampling.top_k or None]
    if sampling.top_p < 1:
        # the smallest set of most likely tokens with at least top_p of the weight that top-k has left
        cumulative = weights[order[: len(top)]].cumsum(dim=-1)
        top = top[: int((cumulative < sampling.top_p * cumulative[-1]).sum()) + 1]
    return max(least, float(top[-1]))


def _logprob(logits: torch.Tensor, token: int, num_top: int) -> TokenLogprob:
    """Of the model's own distribution: no bias, penalty or mask, temperature 1. Equals in the order of their ids."""
    logprobs = logits.double().log_softmax(dim=-1)
    values, token_ids = logprobs.sort(descending=True, stable=True)
    top = zip(token_ids[:num_top].tolist(), values[:num_top].tolist(), strict=True)
    return TokenLogprob(float(logprobs[token]), list(top))
