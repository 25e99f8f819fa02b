"""What requests change about the model's logits before they draw: bias, then penalties.

The order and the roundings of `gpu_node.executors.draws.penalties`: each bias is added by itself; the penalties are
taken all together in float64, from numbers of occurrences that are counted on the device, since the last tokens may
only be known there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_node.kernels.triton.draws.draw_arrays import Adjustments
from gpu_node.kernels.triton.launch import launch, require

TILE = 512

_IN_PROMPT = tl.constexpr(1)
_ONCE_IN_OUTPUT = tl.constexpr(2)


@triton.jit(do_not_specialize=["num_places"])
def _add_biases(adjusted, places, first_biases, nums_biases, biases, num_places, TILE: tl.constexpr):
    tokens = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = tokens < num_places
    place = tl.load(places + tokens, mask=here, other=0)
    first, num = tl.load(first_biases + tokens, mask=here, other=0), tl.load(nums_biases + tokens, mask=here, other=0)
    logit = tl.load(adjusted + place, mask=here, other=0.0)
    for i in range(tl.max(num, 0)):
        bias = tl.load(biases + first + i, mask=i < num, other=0.0)
        logit = tl.where(i < num, (logit.to(tl.float64) + bias).to(tl.float32), logit)
    tl.store(adjusted + place, logit, mask=here)


@triton.jit(do_not_specialize=["num_tokens"])
def _count(occurrences, rows, tokens, are_output, cells, num_tokens, vocab_size, TILE: tl.constexpr):
    places = tl.program_id(0) * TILE + tl.arange(0, TILE)
    here = places < num_tokens
    token = tl.load(tokens + places, mask=here, other=0)
    token = tl.where(token < 0, tl.load(cells - 1 - token, mask=here & (token < 0), other=0), token)
    at = occurrences + tl.load(rows + places, mask=here, other=0).to(tl.int64) * vocab_size + token
    is_output = tl.load(are_output + places, mask=here, other=0) != 0
    tl.atomic_or(at, _IN_PROMPT, mask=here & ~is_output)
    tl.atomic_add(at, _ONCE_IN_OUTPUT, mask=here & is_output)


@triton.jit
def _penalise(adjusted, occurrences, penalties, vocab_size, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = tokens < vocab_size
    times = tl.load(occurrences + row * vocab_size + tokens, mask=here, other=0)
    repetition, frequency = tl.load(penalties + row * 3), tl.load(penalties + row * 3 + 1)
    presence = tl.load(penalties + row * 3 + 2)
    logit = tl.load(adjusted + row * vocab_size + tokens, mask=here, other=0.0).to(tl.float64)
    logit = tl.where(logit > 0.0, logit / repetition, logit * repetition)
    count = times // _ONCE_IN_OUTPUT
    penalised = logit - frequency * count.to(tl.float64) - presence
    logit = tl.where(count > 0, penalised, logit)
    tl.store(adjusted + row * vocab_size + tokens, logit.to(tl.float32), mask=here & (times != 0))


def adjusted_logits(logits: torch.Tensor, adjustments: Adjustments | None, cells: torch.Tensor) -> torch.Tensor:
    """Rows of ``logits`` float32 [rows, vocabulary] with what the draws add to them → float32 [adjusted, vocabulary].

    ``cells`` int32: all that marks may stand for; mark ``-1 - i`` is cell i.
    """
    require(logits.dtype == torch.float32 and logits.dim() == 2, "logits are float32 [rows, vocabulary]", logits)
    vocab_size = logits.shape[1]
    if adjustments is None:
        return logits.new_empty((0, vocab_size))
    adjusted = logits.index_select(0, adjustments.rows)
    num_places = len(adjustments.bias_places)
    launch(
        _add_biases,
        (triton.cdiv(num_places, TILE),),
        adjusted,
        adjustments.bias_places,
        adjustments.first_biases,
        adjustments.nums_biases,
        adjustments.biases,
        num_places,
        TILE=TILE,
    )
    if adjustments.has_penalties:
        occurrences = torch.zeros_like(adjusted, dtype=torch.int32)
        num_tokens = len(adjustments.prior_tokens)
        launch(
            _count,
            (triton.cdiv(num_tokens, TILE),),
            occurrences,
            adjustments.prior_rows,
            adjustments.prior_tokens,
            adjustments.are_output,
            cells,
            num_tokens,
            vocab_size,
            TILE=TILE,
        )
        launch(
            _penalise,
            (len(adjusted), triton.cdiv(vocab_size, TILE)),
            adjusted,
            occurrences,
            adjustments.penalties,
            vocab_size,
            TILE=TILE,
            enable_fp_fusion=False,
        )
    return adjusted
