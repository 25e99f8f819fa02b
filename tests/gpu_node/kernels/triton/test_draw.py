"""Draws are those of the reference sampler, token by token."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import triton

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.counter import uniform as expected_uniform
from gpu_node.executors.draws.sampler import sample
from gpu_node.kernels.token_draw import NOT_DRAWN, TokenDraw, cell_mark
from gpu_node.kernels.triton.draws import chance
from gpu_node.kernels.triton.draws.adjust import adjusted_logits
from gpu_node.kernels.triton.draws.draw import DRAWS_AT_ONCE, draw_tokens
from gpu_node.kernels.triton.draws.draw_arrays import draw_arrays
from shared.messages.requests.payload import Sampling
from tests.gpu_node.executors.cpu.test_cpu_sampler import Case, random_case
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.masks import mask_of

POISON = -77

tl = triton.language


@triton.jit
def _uniform(numbers, out):  # type: ignore[no-untyped-def]
    draw = tl.program_id(0)
    number = chance.uniform(
        tl.load(numbers + 3 * draw), tl.load(numbers + 3 * draw + 1), tl.load(numbers + 3 * draw + 2)
    )
    tl.store(out + draw, number)


def test_random_numbers_are_the_same_bits() -> None:
    numbers = random.Random(1)
    cases = [(0, 0, 0), (3, 5, 0), (-1, 7, 2), (2**63 - 1, 0, 1), (-(2**63), 2**31, 2**31)]
    cases += [(numbers.getrandbits(64) - 2**63, numbers.getrandbits(20), numbers.getrandbits(4)) for _ in range(20)]
    out = torch.zeros(len(cases), dtype=torch.float64, device=DEVICE)
    _uniform[(len(cases),)](torch.tensor(cases, dtype=torch.int64, device=DEVICE), out)
    assert out.tolist() == [expected_uniform(*case) for case in cases]


def token_draw(row: int, draw: Draw, output: Sequence[int]) -> TokenDraw:
    prompt, known = (draw.prompt_token_ids, output) if draw.sampling.has_penalties else ((), ())
    return TokenDraw(row, draw.sampling, draw.position, draw.choice, draw.num_top, prompt, known, draw.allowed)


def on_device(cases: Sequence[Case], cells: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Tokens of all cases, each with a row of its own, and what is in their cells, which come behind ``cells``."""
    logits = torch.stack([logits for logits, _, _ in cases]).to(DEVICE)
    whole = torch.full((len(cases), logits.shape[1] + 1), torch.nan, device=DEVICE)  # rows lie apart
    whole[:, :-1] = logits
    arrays = draw_arrays([token_draw(row, *case[1:]) for row, case in enumerate(cases)], logits.shape[1], DEVICE)
    ring = torch.tensor([*cells, *[POISON] * len(cases)], dtype=torch.int32, device=DEVICE)
    tokens = torch.full((len(cases),), POISON, dtype=torch.int32, device=DEVICE)
    adjusted = adjusted_logits(whole[:, :-1], arrays.adjustments, ring)
    draw_tokens(whole[:, :-1], adjusted, arrays, tokens, ring[len(cells) :])
    return tokens.tolist(), ring[len(cells) :].tolist()


def expected(case: Case) -> int:
    drawn = sample(*case)
    return NOT_DRAWN if drawn is None else drawn.token_id


@pytest.mark.parametrize(("vocab_size", "num_draws"), [(1, 4), (2, 6), (129, 20), (1024, 6), (2500, 8)])
def test_tokens_are_those_of_the_reference(vocab_size: int, num_draws: int) -> None:
    torch.manual_seed(vocab_size)
    numbers = random.Random(vocab_size)
    cases = [random_case(numbers, vocab_size) for _ in range(num_draws)]
    tokens, cells = on_device(cases)
    for case, token in zip(cases, tokens, strict=True):
        assert token == expected(case), case[1]
    assert cells == tokens


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"min_p": 0.2},
        {"top_k": 3},
        {"top_p": 0.7},
        {"top_k": 4, "top_p": 0.8},
        {"top_k": 4, "top_p": 0.8, "min_p": 0.3},
        {"top_p": 0.9, "min_p": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("allowed", [b"", mask_of(range(0, 200, 3))], ids=["any", "masked"])
def test_each_filter_over_many_positions_with_ties(filters: dict[str, Any], allowed: bytes) -> None:
    """Between them, the random numbers of eight positions reach the tokens beside each bound."""
    torch.manual_seed(1)
    logits = (torch.randn(200) * 2).round()
    sampling = Sampling(max_tokens=1, temperature=2.0, seed=9, **filters)
    cases: list[Case] = [
        (logits, Draw(0, sampling, position, allowed=allowed), [0] * position) for position in range(8)
    ]
    tokens, _ = on_device(cases)
    assert tokens == [expected(case) for case in cases]
    assert len(set(tokens)) > 1


def test_logits_that_are_not_finite_give_no_token_and_spare_the_other_draws() -> None:
    cases: list[Case] = []
    for bad in (torch.nan, torch.inf, -torch.inf, 1.0):
        for temperature in (0.0, 1.0):
            for allowed in (b"", mask_of([7])):
                logits = torch.zeros(140)
                logits[130] = bad
                cases.append((logits, Draw(0, Sampling(max_tokens=1, temperature=temperature), 0, allowed=allowed), []))
    tokens, cells = on_device(cases)
    assert tokens[:12] == [NOT_DRAWN] * 12
    assert tokens[12:] == [expected(case) for case in cases[12:]]
    assert cells[:12] == [0] * 12  # a step that counts on a draw has to run all the same


def test_masked_draws_stand_beside_others_each_with_its_own_mask() -> None:
    logits = torch.arange(300.0)
    masks = [b"", mask_of([5]), b"", mask_of([7, 299]), mask_of(range(8)), b"", mask_of([0])]
    greedy = Sampling(max_tokens=1, temperature=0.0)
    assert on_device([(logits, Draw(0, greedy, 0, allowed=mask), []) for mask in masks])[0] == [
        299, 5, 299, 299, 7, 299, 0
    ]  # fmt: skip


def test_penalties_count_tokens_that_are_only_in_cells_yet() -> None:
    logits = torch.tensor([2.0, 1.5, 0.5, 0.0])
    sampling = Sampling(max_tokens=1, temperature=0.0, presence_penalty=1.0, frequency_penalty=0.3)
    known: list[Case] = [(logits, Draw(0, sampling, 2), [0, 1])]
    marked: list[Case] = [(logits, Draw(0, sampling, 2), [cell_mark(1), cell_mark(0)])]
    assert on_device(marked, cells=[1, 0])[0] == on_device(known)[0] == [expected(known[0])]


def test_many_draws_take_turns() -> None:
    cases: list[Case] = [
        (torch.tensor([0.0, float(i % 2), 0.5]), Draw(0, Sampling(max_tokens=1, temperature=0.0), 0), [])
        for i in range(DRAWS_AT_ONCE)
    ]
    cases += [(logits, Draw(0, draw.sampling, 0, allowed=mask_of([0])), []) for logits, draw, _ in cases[:2]]
    assert on_device(cases)[0] == [*[2, 1] * (DRAWS_AT_ONCE // 2), 0, 0]


def test_a_draw_that_cannot_be_is_refused() -> None:
    logits = torch.zeros(10)
    with pytest.raises(ValueError, match="a bias is for token 10"):
        on_device([(logits, Draw(0, Sampling(max_tokens=1, logit_bias=[(10, 1.0)]), 0), [])])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        on_device([(logits, Draw(0, Sampling(max_tokens=1, presence_penalty=1.0), 1), [10])])
    with pytest.raises(ValueError, match="a mask allows no token of a vocabulary of 10"):
        on_device([(logits, Draw(0, Sampling(max_tokens=1), 0, allowed=b"\0\xfc"), [])])
