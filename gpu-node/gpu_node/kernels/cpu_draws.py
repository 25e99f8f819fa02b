"""The draws of a step as the CPU device takes them, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shared.messages import Sampling, TokenLogprob

NOT_DRAWN = -1
"""In place of a drawn token: the logits are not finite."""

Int32s = np.ndarray[Any, np.dtype[np.int32]]
Float64s = np.ndarray[Any, np.dtype[np.float64]]
Records = np.ndarray[Any, np.dtype[np.void]]

_DRAW = np.dtype(
    [
        ("temperature", np.float64),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("presence_penalty", np.float64),
        ("frequency_penalty", np.float64),
        ("repetition_penalty", np.float64),
        ("seed", np.uint64),
        ("position", np.int32),
        ("choice", np.int32),
        ("row", np.int32),
        ("top_k", np.int32),
        ("num_top", np.int32),
        ("num_biases", np.int32),
        ("num_prompt_tokens", np.int32),
        ("num_output_tokens", np.int32),
    ],
    align=True,
)
"""DrawInput in draw_input.h."""
_BIAS = np.dtype([("token_id", np.int32), ("value", np.float64)], align=True)
_SEED_MASK = (1 << 64) - 1


def cell_mark(cell: int) -> int:
    """What stands for the token in a cell, where the device expects a token id."""
    return -1 - cell


class CpuDraw(NamedTuple):
    """One draw of a step."""

    row: int
    """Of the step's logits."""
    sampling: Sampling
    position: int
    choice: int
    num_top: int | None
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int]
    """Token ids or cell marks. Both are empty where no penalty asks for them."""


@dataclass(frozen=True, slots=True)
class CpuDraws:
    """All draws of a step: arrays that the device reads when the step is submitted, and arrays that it fills."""

    first_cell: int
    """Draw i also goes to cell ``first_cell + i``."""
    draws: Records
    """[draws]"""
    biases: Records
    """Of all draws, one behind the other."""
    prior_tokens: Int32s
    """Prompt and output of each draw with penalties, likewise."""
    tokens: Int32s
    """Out, [draws]: the drawn token or `NOT_DRAWN`."""
    logprobs: Float64s
    """Out, [draws], of those that ask for them."""
    top_tokens: Int32s
    """Out: the most likely tokens of all draws, one behind the other."""
    top_logprobs: Float64s
    """Out, likewise."""

    @classmethod
    def of(cls, draws: Sequence[CpuDraw], vocab_size: int, first_cell: int = 0) -> CpuDraws:
        """Arrays for ``draws`` from logits of ``vocab_size`` tokens."""
        nums_top = [-1 if draw.num_top is None else min(draw.num_top, vocab_size) for draw in draws]
        records = [_record(draw, num_top, vocab_size) for draw, num_top in zip(draws, nums_top, strict=True)]
        biases = [bias for draw in draws for bias in draw.sampling.logit_bias]
        prior = [ids for draw in draws for ids in (draw.prompt_token_ids, draw.output_token_ids) if ids]
        num_top_tokens = sum(num_top for num_top in nums_top if num_top > 0)
        return cls(
            first_cell=first_cell,
            draws=np.array(records, dtype=_DRAW),
            biases=np.array(biases, dtype=_BIAS),
            prior_tokens=np.concatenate([np.asarray(ids, np.int32) for ids in prior])
            if prior
            else np.empty(0, np.int32),
            tokens=np.empty(len(draws), dtype=np.int32),
            logprobs=np.empty(len(draws), dtype=np.float64),
            top_tokens=np.empty(num_top_tokens, dtype=np.int32),
            top_logprobs=np.empty(num_top_tokens, dtype=np.float64),
        )

    def token_logprobs(self) -> list[TokenLogprob | None]:
        """Of each draw, None where nobody asked or nothing was drawn; after the step."""
        found: list[TokenLogprob | None] = []
        first = 0
        top = list(zip(self.top_tokens.tolist(), self.top_logprobs.tolist(), strict=True))
        for token, logprob, num_top in zip(
            self.tokens.tolist(), self.logprobs.tolist(), self.draws["num_top"].tolist(), strict=True
        ):
            end = first + max(num_top, 0)
            asked = num_top >= 0 and token != NOT_DRAWN
            found.append(TokenLogprob(logprob, top[first:end]) if asked else None)
            first = end
        return found


def _record(draw: CpuDraw, num_top: int, vocab_size: int) -> tuple[float | int, ...]:
    sampling = draw.sampling
    return (
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.repetition_penalty,
        sampling.seed & _SEED_MASK,
        draw.position,
        draw.choice,
        draw.row,
        sampling.top_k if sampling.top_k < vocab_size else 0,
        num_top,
        len(sampling.logit_bias),
        len(draw.prompt_token_ids),
        len(draw.output_token_ids),
    )


NO_DRAWS = CpuDraws.of((), vocab_size=1)
