"""The draws of a step as the CPU device takes them, and what it answers."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from gpu_node.kernels.cpu.library.layout import Int32s
from gpu_node.kernels.token_draw import NOT_DRAWN, TokenDraw, mask_within
from shared.messages.requests.token_logprob import TokenLogprob

Uint8s = np.ndarray[Any, np.dtype[np.uint8]]
Uint32s = np.ndarray[Any, np.dtype[np.uint32]]
Float64s = np.ndarray[Any, np.dtype[np.float64]]

_DRAW = struct.Struct("6dQ10i")
"""DrawInput in draw_input.h, whose fields `_packed` names."""
_BIAS = struct.Struct("id")
"""Bias in draw_input.h: token id and what is added to its logit."""
_SEED_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class CpuDraws:
    """All draws of a step: arrays that the device reads when the step is submitted, and arrays that it fills."""

    first_cell: int
    """Draw i also goes to cell ``first_cell + i``."""
    nums_top: Sequence[int]
    """[draws]: logprobs beside the drawn token's; -1 for none at all."""
    draws: bytes
    """[draws] of `_DRAW`."""
    biases: bytes
    """Of all draws, one behind the other, `_BIAS`."""
    prior_tokens: Int32s
    """Prompt and output of each draw with penalties, likewise."""
    masks: bytes
    """Of all draws that have one, likewise."""
    late_draws: Sequence[int]
    """Draws whose masks come late, by number."""
    late_masks: Uint8s
    """[late draws, bytes]: read by the device when they are given (`give_masks`); zeros for any token."""
    late_masks_given: Uint32s
    """[1]: not 0 once they are."""
    tokens: Int32s
    """Out, [draws]: the drawn token or `NOT_DRAWN`."""
    logprobs: Float64s
    """Out, [draws], of those that ask for them."""
    top_tokens: Int32s
    """Out: the most likely tokens of all draws, one behind the other."""
    top_logprobs: Float64s
    """Out, likewise."""

    @classmethod
    def of(cls, draws: Sequence[TokenDraw], vocab_size: int, first_cell: int = 0) -> CpuDraws:
        """Arrays for ``draws`` from logits of ``vocab_size`` tokens. `ValueError` where a mask allows none of them."""
        masks = [draw.mask(vocab_size) for draw in draws]
        late_draws = [number for number, draw in enumerate(draws) if draw.is_mask_late]
        nums_top = [-1 if draw.num_top is None else min(draw.num_top, vocab_size) for draw in draws]
        priors = [ids for draw in draws for ids in (draw.prompt_token_ids, draw.output_token_ids)]
        prior_tokens = [np.asarray(ids, dtype=np.int32) for ids in priors if len(ids)]
        num_top_tokens = sum(num_top for num_top in nums_top if num_top > 0)
        return cls(
            first_cell=first_cell,
            nums_top=nums_top,
            draws=b"".join(
                _packed(draw, num_top, vocab_size, len(mask))
                for draw, num_top, mask in zip(draws, nums_top, masks, strict=True)
            ),
            biases=b"".join(_BIAS.pack(*bias) for draw in draws for bias in draw.sampling.logit_bias),
            prior_tokens=np.concatenate([*prior_tokens, np.empty(0, dtype=np.int32)]),
            masks=b"".join(masks),
            late_draws=late_draws,
            late_masks=np.zeros((len(late_draws), -(-vocab_size // 8)), dtype=np.uint8),
            late_masks_given=np.zeros(1, dtype=np.uint32),
            tokens=np.empty(len(draws), dtype=np.int32),
            logprobs=np.empty(len(draws), dtype=np.float64),
            top_tokens=np.empty(num_top_tokens, dtype=np.int32),
            top_logprobs=np.empty(num_top_tokens, dtype=np.float64),
        )

    def put_late_masks(self, masks: Mapping[int, bytes], vocab_size: int) -> None:
        """Masks of draws that come late, by number, for any token where one is left out. The device is not told."""
        for row, number in zip(self.late_masks, self.late_draws, strict=True):
            mask = mask_within(masks.get(number, b""), vocab_size)
            row[: len(mask)] = np.frombuffer(mask, dtype=np.uint8)

    def token_logprobs(self) -> list[TokenLogprob | None]:
        """Of each draw, None where it was not asked for or nothing was drawn; after the step."""
        found: list[TokenLogprob | None] = []
        top = zip(self.top_tokens.tolist(), self.top_logprobs.tolist(), strict=True)
        each_draw = zip(self.tokens.tolist(), self.logprobs.tolist(), self.nums_top, strict=True)
        for token, logprob, num_top in each_draw:
            own = list(islice(top, max(num_top, 0)))
            found.append(None if num_top < 0 or token == NOT_DRAWN else TokenLogprob(logprob, own))
        return found


def _packed(draw: TokenDraw, num_top: int, vocab_size: int, num_mask_bytes: int) -> bytes:
    sampling = draw.sampling
    return _DRAW.pack(
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
        num_mask_bytes,
        draw.is_mask_late,
    )


NO_DRAWS = CpuDraws.of((), vocab_size=1)
