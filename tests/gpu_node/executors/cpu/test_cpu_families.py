"""Programs of every family on the CPU device, against the interpreter with the same weights, rounded to bfloat16."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from gpu_node.executors.cpu.lowering import lower
from gpu_node.executors.cpu.unsupported import UnsupportedOperatorError
from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.copy_out import copy_out
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import OperatorKind, Program
from gpu_node.graph.share import DECODE, LOCAL, PREFILL, REMOTE, Part, Range, Share
from gpu_node.kernels import cpu
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice, CpuStep, Limits
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family, ModelConfig
from tests.gpu_node.batch_cuts import THRICE, TWICE, RandomCuts, in_shares
from tests.gpu_node.family_programs import (
    BLOCK_SIZE,
    CONFIGS,
    HEAD_DIM,
    HEADS,
    LAYERS,
    LENGTH,
    NUM_BLOCKS,
    VOCAB,
    config,
    logits_of,
    of_program,
    random_weights,
    steps,
)
from tests.gpu_node.own_arena import program_with_arena
from tests.gpu_node.random_pipelines import random_pipeline

TOLERANCE = 0.03
"""Some ten products of inputs rounded to 8 bits, one behind the other, in weights of ordinary size."""


def int32(values: list[int]) -> cpu.Int32s:
    return np.array(values, dtype=np.int32)


def on_device(
    device: CpuDevice,
    model: ModelConfig,
    program: Program,
    weights: dict[str, torch.Tensor],
    *,
    round_early: bool = True,
    piped: Program | None = None,
    level: str = "",
    checks_copies: bool = True,
) -> torch.Tensor:
    """What `logits_of` gives, by a device; with ``piped``, in its lanes.

    Where these copy blocks out, all that a step writes is copied in it, and is what is there behind it.
    """
    cache = CpuCacheShape(LAYERS, NUM_BLOCKS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    limits = Limits(128, 128, LENGTH, VOCAB)
    outputs = []
    copies = [[block, block] for block in range(NUM_BLOCKS)] if piped is not None and piped.copies_out else []
    with program_with_arena(limits, cache, HEADS // model.num_kv_heads, level, len(copies)) as (lowered, arena, host):
        lower(program, weights, lowered, LENGTH, piped=piped, round_early=round_early)
        for one in steps():
            logits = np.empty((len(one.draw_rows), VOCAB), dtype=np.float32)
            step = CpuStep(
                starts=int32([sequence.start for sequence in one.sequences]),
                num_rows=int32([sequence.num_rows for sequence in one.sequences]),
                num_blocks=int32([len(sequence.block_table) for sequence in one.sequences]),
                block_tables=int32([block for sequence in one.sequences for block in sequence.block_table]),
                token_ids=int32(one.token_ids),
                draw_rows=int32(one.draw_rows),
                copies=int32([]),
                logits=logits,
                copies_out=np.array(copies, dtype=np.int32).reshape(-1, 2),
                in_lanes=piped is not None,
            )
            device.wait(device.submit(lowered, step))
            for block, _ in copies if checks_copies else []:
                here, there = (one.block(block, NUM_BLOCKS, cache.block_bytes) for one in (arena, host))
                np.testing.assert_array_equal(here, there)
            outputs.append(torch.from_numpy(logits))
    return torch.cat(outputs)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_program_computes_the_same_on_the_device(name: str) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    optimized = optimize(program)
    split = split_operators(optimized, even_plan(optimized, 3))
    changes = (program, fuse(program), early_draws(program), optimized, split, insert_polls(split))
    with CpuDevice(2) as device:
        plain = on_device(device, model, program, stored, round_early=False)
        changed = [on_device(device, model, other, of_program(other, stored)) for other in changes]
        changed.append(on_device(device, model, optimized, of_program(optimized, stored), round_early=False))
    theirs = logits_of(model, program, stored)
    assert float((plain - theirs).norm() / theirs.norm()) < TOLERANCE
    assert [ours.equal(plain) for ours in changed] == [True] * len(changed)


def test_what_the_device_has_no_kernel_for_is_refused_by_name() -> None:
    model = config(family=Family.LLAMA)
    program = build_program(model)
    divided = tensor_parallel(program, 0, 2)
    with (
        CpuDevice(1) as device,
        pytest.raises(UnsupportedOperatorError, match="no kernel for 'all_reduce'; the reference executor has"),
    ):
        on_device(device, model, divided, of_program(divided, random_weights(model, program)))


def cut_programs(program: Program) -> list[Program]:
    """With each operator once for each part of the batch: what nano-batches and offload are made of."""
    optimized = optimize(program)
    residences = in_shares(optimized, (LOCAL, REMOTE))
    random_cuts = [RandomCuts(seed)(optimized) for seed in range(4)]
    return [
        in_shares(program, TWICE),
        in_shares(optimized, THRICE),
        in_shares(optimized, (DECODE, PREFILL)),
        insert_polls(split_operators(residences, even_plan(residences, 2))),
        *random_cuts,
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_in_parts_gives_the_same(name: str) -> None:
    """Bit by bit on the device. In the interpreter the order of sums depends on the number of rows."""
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    theirs = logits_of(model, program, stored)
    with CpuDevice(2) as device:
        plain = on_device(device, model, program, stored)
        for parts in cut_programs(program):
            weights = of_program(parts, stored)
            assert on_device(device, model, parts, weights).equal(plain)
            for num_remote in range(2):
                ours = logits_of(model, parts, weights, num_remote=num_remote)
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_range_that_cannot_be_is_refused() -> None:
    cache = CpuCacheShape(1, 4, 16, 1, 8)
    nothing = Share((Range(Part.ALL, Fraction(1, 2), Fraction(1, 2)),))
    with (
        program_with_arena(Limits(8, 8, 64, 4), cache, 1) as (program, _, _),
        pytest.raises(RuntimeError, match="from one fraction of a part of the batch to a later one"),
    ):
        program.work_on(nothing)


def in_pipelines(program: Program) -> list[Program]:
    """In lanes of any kind, of programs that other passes have changed."""
    optimized = optimize(program)
    split = insert_polls(split_operators(optimized, even_plan(optimized, 2)))
    before = [program, copy_out(optimized), optimized, copy_out(split), RandomCuts(9)(optimized)]
    return [nano_batches(one, random_pipeline(seed)) for seed, one in enumerate(before)]


def listed_of(piped: Program) -> Program:
    """The same for steps in no lanes, which copy blocks before everything."""
    kept = tuple(one for one in piped.operators if one.kind is not OperatorKind.COPY_OUT)
    return replace(piped, lanes=(), operators=kept)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_lanes_give_the_bits_of_one_operator_after_another(name: str, num_threads: int) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    with CpuDevice(num_threads) as device:
        plain = on_device(device, model, program, stored)
        for piped in in_pipelines(program):
            listed = listed_of(piped)
            weights = of_program(piped, stored)
            assert on_device(device, model, listed, weights).equal(plain)
            for early in (True, False):
                assert on_device(device, model, listed, weights, piped=piped, round_early=early).equal(plain)
