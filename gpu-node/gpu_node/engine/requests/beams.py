"""Beam search and ranking, as pure functions over logprobs.

Each step looks at the continuations of all beams, most likely first. What ends among the first ``width`` of them
becomes a hypothesis; the first ``width`` that do not end go on. An end further down is no hypothesis: had it not ended,
it would have been no beam either (the rule of fairseq and transformers). The best ``width`` hypotheses are kept, and
the search is over when no beam can come to beat the worst of them.

Order is total, so the same logprobs give the same beams everywhere: likelier first, then the older beam, then the lower
token id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.messages.requests.token_logprob import TokenLogprob

TopTokens = Sequence[tuple[int, float]]
"""Token ids with their logprobs, most likely first."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A candidate that has ended."""

    score: float
    token_ids: list[int]
    """The output."""
    logprobs: list[TokenLogprob]
    """One a token."""
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Continuation:
    """A beam with one token more."""

    beam: int
    """Place of the beam among those that were continued."""
    token_id: int
    logprob: float
    """Of the token alone."""
    sum_logprobs: float
    """Of the whole output."""


def score(sum_logprobs: float, num_tokens: int, length_penalty: float) -> float:
    """What candidates are ranked by: summed logprobs of ``num_tokens`` >= 1 tokens over their number to a power."""
    return sum_logprobs / float(num_tokens**length_penalty)


def best_score(sum_logprobs: float, num_tokens: int, max_tokens: int, length_penalty: float) -> float:
    """Upper bound of the score that a beam can reach: logprobs are never above 0, so the sum can only fall.

    With a positive penalty the same sum scores higher the longer it is, so the bound is taken at the greatest length.
    """
    return score(sum_logprobs, max_tokens if length_penalty > 0 else num_tokens, length_penalty)


def continuations(beams: Sequence[tuple[float, TopTokens]]) -> list[Continuation]:
    """All continuations of ``beams`` (summed logprobs, most likely next tokens), best first."""
    found = [
        Continuation(beam, token_id, logprob, sum_logprobs + logprob)
        for beam, (sum_logprobs, top) in enumerate(beams)
        for token_id, logprob in top
    ]
    found.sort(key=lambda one: (-one.sum_logprobs, one.beam, one.token_id))
    return found


def choose(
    ranked: Sequence[Continuation], width: int, ends: Callable[[Continuation], bool]
) -> tuple[list[Continuation], list[Continuation]]:
    """Those of ``ranked`` that end as hypotheses, and those that go on as beams; at most ``width`` each."""
    ended = [one for one in ranked[:width] if ends(one)]
    beams: list[Continuation] = []
    for one in ranked:
        if len(beams) == width:
            break
        if not ends(one):
            beams.append(one)
    return ended, beams


def best(hypotheses: Sequence[Hypothesis], num_kept: int) -> list[Hypothesis]:
    """The highest scores, best first; among equals the one that ended first."""
    return sorted(hypotheses, key=lambda one: -one.score)[:num_kept]


def is_over(hypotheses: Sequence[Hypothesis], width: int, best_possible_score: float) -> bool:
    """Whether ``hypotheses`` (best first) are ``width`` and none can be beaten by what still runs."""
    return len(hypotheses) == width and best_possible_score <= hypotheses[-1].score
