"""The draws of a step as arrays of a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TypeVar

import torch

from gpu_node.kernels.token_draw import TokenDraw
from gpu_node.kernels.triton.launch import ALIGNMENT_BYTES, require, upload

_SEED_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class DrawArrays:
    """What each draw needs, [draws]."""

    rows: torch.Tensor
    """int64: of the logits."""
    adjusted_rows: torch.Tensor
    """int64: of the logits with bias and penalties; -1 for a draw that has neither."""
    temperatures: torch.Tensor
    """float64; 0 takes the most likely."""
    tops_k: torch.Tensor
    """int64; 0 keeps all."""
    tops_p: torch.Tensor
    """float64."""
    min_p_margins: torch.Tensor
    """float64: how far below the largest logit min-p lets one lie, as a sum to be added; -inf without it."""
    nucleus_margins: torch.Tensor
    """float64: below this no nucleus begins: half of what all tokens would have to weigh to be left out together."""
    seeds: torch.Tensor
    """int64: the lower 64 bits."""
    positions: torch.Tensor
    """int64."""
    choices: torch.Tensor
    """int64."""
    first_mask_bytes: torch.Tensor
    """int64: where the draw's mask begins in ``masks``."""
    nums_mask_bytes: torch.Tensor
    """int64: how long it is; 0 where any token may be drawn."""
    masks: torch.Tensor
    """uint8 [bytes]: of all draws that have one, one behind the other, a bit a token (`TokenDraw.allowed`)."""
    adjustments: Adjustments | None
    """None where no draw has any."""


@dataclass(frozen=True, slots=True)
class Adjustments:
    """Biases and penalties of the draws that have any, in their order: rows of their own."""

    has_penalties: bool
    rows: torch.Tensor
    """int64 [adjusted]: of the logits that each begins with."""
    bias_places: torch.Tensor
    """int64 [biased tokens]: in all adjusted rows, one behind the other; each token of a row once."""
    first_biases: torch.Tensor
    """int32 [biased tokens]: the first of its biases."""
    nums_biases: torch.Tensor
    """int32 [biased tokens]: how many it has, added in their order."""
    biases: torch.Tensor
    """float64."""
    penalties: torch.Tensor
    """float64 [adjusted, 3]: repetition, frequency, presence."""
    prior_rows: torch.Tensor
    """int32 [prior tokens]: the adjusted row of each."""
    prior_tokens: torch.Tensor
    """int32 [prior tokens]: ids, or below 0 the marks of cells."""
    are_output: torch.Tensor
    """bool [prior tokens]: of the output, or of the prompt."""


def draw_arrays(draws: Sequence[TokenDraw], vocab_size: int, device: torch.device) -> DrawArrays:
    """Arrays for draws from logits of ``vocab_size`` tokens, by one transfer.

    `ValueError` for a token that the vocabulary does not have, and for a mask that allows none that it has.
    """
    masks = [draw.mask(vocab_size) for draw in draws]
    adjusted = [draw for draw in draws if draw.sampling.logit_bias or draw.sampling.has_penalties]
    numbers = iter(range(len(adjusted)))
    sampling = [draw.sampling for draw in draws]
    integers = [
        [draw.row for draw in draws],
        [next(numbers) if one.logit_bias or one.has_penalties else -1 for one in sampling],
        [one.top_k if one.top_k < vocab_size else 0 for one in sampling],
        [_signed(one.seed) for one in sampling],
        [draw.position for draw in draws],
        [draw.choice for draw in draws],
        list(accumulate((len(mask) for mask in masks[:-1]), initial=0))[: len(draws)],
        [len(mask) for mask in masks],
    ]
    floats = [
        [one.temperature for one in sampling],
        [one.top_p for one in sampling],
        [one.temperature * math.log(one.min_p) if one.min_p > 0 else -math.inf for one in sampling],
        [
            one.temperature * math.log((1 - one.top_p) / vocab_size / 2) if one.top_p < 1 else -math.inf
            for one in sampling
        ],
    ]
    host = [_aligned(integers, torch.int64), _aligned(floats, torch.float64), _bytes(masks)]
    host += _adjustments(adjusted, vocab_size) if adjusted else []
    integer_columns, float_columns, mask_bytes, *changes = upload(host, device)
    rows, adjusted_rows, tops_k, seeds, positions, choices, *places = integer_columns[:, : len(draws)]
    first_mask_bytes, nums_mask_bytes = places
    temperatures, tops_p, min_p_margins, nucleus_margins = float_columns[:, : len(draws)]
    return DrawArrays(
        rows=rows,
        adjusted_rows=adjusted_rows,
        temperatures=temperatures,
        tops_k=tops_k,
        tops_p=tops_p,
        min_p_margins=min_p_margins,
        nucleus_margins=nucleus_margins,
        seeds=seeds,
        positions=positions,
        choices=choices,
        first_mask_bytes=first_mask_bytes,
        nums_mask_bytes=nums_mask_bytes,
        masks=mask_bytes,
        adjustments=Adjustments(any(one.has_penalties for one in sampling), *changes) if adjusted else None,
    )


def _aligned(columns: Sequence[Sequence[float]], kind: torch.dtype) -> torch.Tensor:
    """[columns, numbers], each column filled up so that the next one begins aligned."""
    num_together = ALIGNMENT_BYTES // kind.itemsize
    filling = [0] * (-len(columns[0]) % num_together)
    return torch.tensor([[*column, *filling] for column in columns], dtype=kind)


def _bytes(masks: Sequence[bytes]) -> torch.Tensor:
    """Never empty, so that a kernel has an address."""
    return torch.frombuffer(bytearray().join(masks) or bytearray(1), dtype=torch.uint8)


def _adjustments(draws: Sequence[TokenDraw], vocab_size: int) -> list[torch.Tensor]:
    """The tensors of `Adjustments`, in their order."""
    biases: list[float] = []
    runs: list[tuple[int, int, int]] = []  # place, first bias and number of biases
    priors: list[tuple[int, int, bool]] = []
    for row, draw in enumerate(draws):
        by_token = sorted(draw.sampling.logit_bias, key=lambda bias: bias[0])
        for token, values in groupby(by_token, key=lambda bias: bias[0]):
            require(0 <= token < vocab_size, f"a bias is for token {token} of a vocabulary of {vocab_size}")
            of_token = [value for _, value in values]
            runs.append((row * vocab_size + token, len(biases), len(of_token)))
            biases += of_token
        if draw.sampling.has_penalties:
            for ids, is_output in ((draw.prompt_token_ids, False), (draw.output_token_ids, True)):
                priors += [(row, int(token), is_output) for token in ids]
    require(
        all(token < vocab_size for _, token, _ in priors), "a token of a prompt or output is outside the vocabulary"
    )
    places, firsts, nums = _columns(runs, 3)
    prior_rows, prior_tokens, are_output = _columns(priors, 3)
    penalties = [
        (one.repetition_penalty, one.frequency_penalty, one.presence_penalty)
        for one in (draw.sampling for draw in draws)
    ]
    return [
        torch.tensor([draw.row for draw in draws], dtype=torch.int64),
        torch.tensor(places, dtype=torch.int64),
        torch.tensor(firsts, dtype=torch.int32),
        torch.tensor(nums, dtype=torch.int32),
        torch.tensor(biases, dtype=torch.float64),
        torch.tensor(penalties, dtype=torch.float64).reshape(-1, 3),
        torch.tensor(prior_rows, dtype=torch.int32),
        torch.tensor(prior_tokens, dtype=torch.int32),
        torch.tensor(are_output, dtype=torch.bool),
    ]


Number = TypeVar("Number")


def _columns(rows: Sequence[tuple[Number, ...]], num_columns: int) -> list[list[Number]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(num_columns)]


def _signed(seed: int) -> int:
    """The lower 64 bits of any integer, as the int64 that has them."""
    bits = seed & _SEED_MASK
    return bits - (1 << 64) if bits >> 63 else bits
