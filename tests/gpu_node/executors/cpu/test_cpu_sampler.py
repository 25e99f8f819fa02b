"""The CPU device draws the tokens that the reference sampler draws, on every level that this machine has."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gpu_node.engine.border.plan import Draw
from gpu_node.executors.draws.sampler import sample
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice, CpuRows, CpuStep, Limits, Type
from gpu_node.kernels.cpu.draws import CpuDraws
from gpu_node.kernels.token_draw import NOT_DRAWN, TokenDraw
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.masks import mask_of, random_mask
from tests.gpu_node.own_arena import program_with_arena

pytestmark = pytest.mark.slow

MAX_ROWS = 64
LOGPROB_ERROR = 1e-4

Case = tuple[torch.Tensor, Draw, list[int]]
"""Logits, how to draw, and the output so far."""


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    with CpuDevice(3) as device:
        yield device


def on_device(
    device: CpuDevice, level: str, cases: Sequence[Case], masks: bytes | None = None
) -> tuple[list[int], list[TokenLogprob | None]]:
    """All cases in one step, each with a row of its own; the tokens, and the logprobs where asked for.

    ``masks``: instead of theirs, as the C interface takes them.
    """
    vocab_size = len(cases[0][0])
    limits = Limits(MAX_ROWS, MAX_ROWS, 64, vocab_size)
    with program_with_arena(limits, CpuCacheShape(1, 8, 16, 1, 8), 1, level) as (program, _, _):
        view = program.buffer(CpuRows.DRAWS, Type.FLOAT32, vocab_size)
        values = program.buffer_values(view, CpuRows.DRAWS)
        values.fill(np.nan)
        values[: len(cases)] = torch.stack([logits for logits, _, _ in cases])
        program.add("draw", view)
        given = step(cases, vocab_size)
        if masks is not None:
            given = replace(given, draws=replace(given.draws, masks=masks))
        device.wait(device.submit(program, given))
    return given.draws.tokens.tolist(), given.draws.token_logprobs()


def step(cases: Sequence[Case], vocab_size: int) -> CpuStep:
    ones = np.ones(len(cases), dtype=np.int32)
    draws = []
    for row, (_, draw, output) in enumerate(cases):
        prompt, known = (draw.prompt_token_ids, output) if draw.sampling.has_penalties else ((), ())
        draws.append(
            TokenDraw(row, draw.sampling, draw.position, draw.choice, draw.num_top, prompt, known, draw.allowed)
        )
    return CpuStep(
        starts=ones * 0,
        num_rows=ones,
        num_blocks=ones,
        block_tables=ones * 0,
        token_ids=ones * 0,
        draw_rows=np.arange(len(cases), dtype=np.int32),
        copies=np.empty((0, 2), dtype=np.int32),
        logits=None,
        draws=CpuDraws.of(draws, vocab_size),
    )


def random_logits(numbers: random.Random, vocab_size: int) -> torch.Tensor:
    kind = numbers.choice(["normal", "peaked", "ties", "equal", "wide", "tail"])
    logits = torch.randn(vocab_size)
    match kind:
        case "peaked":
            return logits * 4
        case "ties":
            return (logits * 2).round()
        case "equal":
            return torch.full((vocab_size,), float(logits[0]))
        case "wide":
            return logits * 10.0 ** numbers.randint(1, 30)
        case "tail":
            return -(logits.abs().exp() ** 3)
        case _:
            return logits


def random_sampling(numbers: random.Random, vocab_size: int) -> Sampling:
    options: dict[str, Any] = {"temperature": numbers.choice([0.0, 0.7, 1.0, 1.0, 1.3, 1e-6, 0.05, 30.0, 1e6])}
    if numbers.random() < 0.5:
        options["top_k"] = numbers.choice([1, 2, 5, 20, 50, 300, vocab_size - 1, vocab_size, vocab_size + 1, 10**12])
    if numbers.random() < 0.5:
        options["top_p"] = numbers.choice([1e-9, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12, numbers.uniform(0.01, 1)])
    if numbers.random() < 0.3:
        options["min_p"] = numbers.choice([1e-9, 0.05, 0.5, 1.0])
    if numbers.random() < 0.3:
        options["repetition_penalty"] = numbers.choice([0.5, 1.1, 2.0])
    if numbers.random() < 0.3:
        options["presence_penalty"] = numbers.uniform(-2, 2)
    if numbers.random() < 0.3:
        options["frequency_penalty"] = numbers.uniform(-2, 2)
    if numbers.random() < 0.3:
        options["logit_bias"] = [
            (numbers.randrange(vocab_size), numbers.choice([-100.0, 100.0, 0.1])) for _ in range(numbers.randint(1, 5))
        ]
    return Sampling(max_tokens=1, seed=numbers.randint(-9, 1 << 70), **options)


def random_case(numbers: random.Random, vocab_size: int) -> Case:
    output = [numbers.randrange(vocab_size) for _ in range(numbers.choice([0, 3, 40]))]
    draw = Draw(
        sequence_id=0,
        sampling=random_sampling(numbers, vocab_size),
        position=len(output),
        choice=numbers.choice([0, 0, 1, 9]),
        num_top=numbers.choice([None, None, 0, 1, 20, 600]),
        prompt_token_ids=[numbers.randrange(vocab_size) for _ in range(numbers.choice([0, 5]))],
        allowed=numbers.choice([b"", random_mask(numbers, vocab_size)]),
    )
    return random_logits(numbers, vocab_size), draw, output


def check(cases: Sequence[Case], tokens: list[int], logprobs: list[TokenLogprob | None]) -> None:
    for (logits, draw, output), token, logprob in zip(cases, tokens, logprobs, strict=True):
        expected = sample(logits, draw, output)
        assert token == (NOT_DRAWN if expected is None else expected.token_id), draw
        wanted = None if expected is None else expected.logprob
        assert (logprob is None) == (wanted is None)
        if logprob is not None and wanted is not None:
            assert logprob.logprob == pytest.approx(wanted.logprob, abs=LOGPROB_ERROR, rel=1e-6)
            assert [top for top, _ in logprob.top] == [top for top, _ in wanted.top]
            values, expected_values = ([value for _, value in each.top] for each in (logprob, wanted))
            assert values == pytest.approx(expected_values, abs=LOGPROB_ERROR, rel=1e-6)


@pytest.mark.parametrize(
    ("vocab_size", "num_steps"), [(1, 1), (2, 2), (96, 10), (128, 2), (129, 2), (1000, 10), (5003, 5)]
)
def test_tokens_and_logprobs_are_those_of_the_reference(
    device: CpuDevice, level: str, vocab_size: int, num_steps: int
) -> None:
    """Both weigh in float64, so that not one of some thousand draws falls to the other side of a boundary."""
    torch.manual_seed(vocab_size)
    numbers = random.Random(vocab_size)
    for _ in range(num_steps):
        cases = [random_case(numbers, vocab_size) for _ in range(MAX_ROWS)]
        check(cases, *on_device(device, level, cases))


def test_a_row_of_a_real_vocabulary_too(device: CpuDevice, level: str) -> None:
    torch.manual_seed(3)
    numbers = random.Random(3)
    cases = [random_case(numbers, 49_152) for _ in range(16)]
    check(cases, *on_device(device, level, cases))


def test_logits_that_are_not_finite_give_no_token_and_spare_the_other_draws(device: CpuDevice, level: str) -> None:
    torch.manual_seed(1)
    cases: list[Case] = []
    for bad in (torch.nan, torch.inf, -torch.inf, 1.0):
        for place in (0, 130, 399):
            for temperature in (0.0, 1.0):
                for allowed in (b"", mask_of([7]), mask_of(range(400))):
                    logits = torch.randn(400)
                    logits[place] = bad
                    sampling = Sampling(max_tokens=1, temperature=temperature)
                    cases.append((logits, Draw(0, sampling, 0, num_top=1, allowed=allowed), []))
    first, last = on_device(device, level, cases[:54]), on_device(device, level, cases[54:])
    assert first == ([NOT_DRAWN] * 54, [None] * 54)
    assert NOT_DRAWN not in last[0]
    assert None not in last[1]
    check(cases[54:], *last)


def test_a_draw_is_the_same_bits_alone_in_any_batch_and_on_any_number_of_threads(device: CpuDevice, level: str) -> None:
    torch.manual_seed(2)
    numbers = random.Random(2)
    cases = [random_case(numbers, 1000) for _ in range(24)]
    tokens, logprobs = on_device(device, level, cases)
    backwards = on_device(device, level, cases[::-1])
    assert (tokens[::-1], logprobs[::-1]) == backwards
    with CpuDevice(1) as other:
        for case, token, logprob in zip(cases, tokens, logprobs, strict=True):
            assert on_device(other, level, [case]) == ([token], [logprob])


def test_a_draw_that_cannot_be_is_refused_before_it_runs(device: CpuDevice, level: str) -> None:
    logits = torch.zeros(10)
    for sampling, output, error in [
        (Sampling(max_tokens=1, logit_bias=[(10, 1.0)]), [], "a bias is for a token outside"),
        (Sampling(max_tokens=1, presence_penalty=1.0), [10], "a token of a prompt or output is outside"),
        (Sampling(max_tokens=1, temperature=-1.0), [], "a draw with a number that it cannot have"),
    ]:
        with pytest.raises(RuntimeError, match=error):
            on_device(device, level, [(logits, Draw(0, sampling, len(output)), output)])
    with pytest.raises(ValueError, match="a mask allows no token of a vocabulary of 10"):
        on_device(device, level, [(logits, Draw(0, Sampling(max_tokens=1), 0, allowed=b"\0\xfc"), [])])
    masked: Case = (logits, Draw(0, Sampling(max_tokens=1), 0, allowed=b"\xff\x01"), [])
    for masks in (b"\0\0", b"\xff\x05"):
        with pytest.raises(RuntimeError, match="a mask allows no token, or one outside the vocabulary"):
            on_device(device, level, [masked], masks)


def test_masked_draws_stand_beside_others_each_with_its_own_mask(device: CpuDevice, level: str) -> None:
    logits = torch.arange(300.0)
    masks = [b"", mask_of([5]), b"", mask_of([7, 299]), mask_of(range(8)), b"", mask_of([0])]
    greedy = Sampling(max_tokens=1, temperature=0.0)
    tokens, _ = on_device(device, level, [(logits, Draw(0, greedy, 0, allowed=mask), []) for mask in masks])
    assert tokens == [299, 5, 299, 299, 7, 299, 0]
