"""Programs by the launches of the CUDA device, against the interpreter of programs with the same weights.

Every family by itself is in test_cuda_executor.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from gpu_node.executors.cuda.program.inputs import InputLimits, StepInputs
from gpu_node.executors.cuda.program.lane_streams import CudaLaneStreams, DirectStreams
from gpu_node.executors.cuda.program.lowering import LOWERINGS, lower
from gpu_node.executors.cuda.program.program import CudaProgram
from gpu_node.graph.lanes import first_ready
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import OperatorKind, Program
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places
from gpu_node.kernels.triton.launch import INTERPRETED
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from tests.gpu_node.batch_cuts import RandomCuts
from tests.gpu_node.family_programs import (
    BLOCK_SIZE,
    CONFIGS,
    HEAD_DIM,
    HEADS,
    LAYERS,
    LENGTH,
    NUM_BLOCKS,
    SHORT,
    config,
    logits_of,
    of_program,
    random_weights,
    steps,
)
from tests.gpu_node.kernels.triton.buffers import DEVICE, FLOAT32_ERROR
from tests.gpu_node.random_pipelines import random_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

MAX_ROWS = 64
TOLERANCE = 0.06
"""In bfloat16 all buffers are rounded, and the interpreter cuts off where a device rounds."""


def on_device(
    model: ModelConfig,
    program: Program,
    weights: dict[str, torch.Tensor],
    dtype: torch.dtype = torch.float32,
    *,
    joins_norms: bool = True,
    piped: Program | None = None,
    choose: Callable[[int], int] = first_ready,
) -> torch.Tensor:
    """What `logits_of` gives, by the kernels; with ``piped``, in its lanes, where ``choose`` says what comes next."""
    shape = CacheShape(LAYERS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    block_lines = shape.block_lines(dtype.itemsize)
    places = Places(NUM_BLOCKS * block_lines, block_lines)
    numbers = torch.full((NUM_BLOCKS * block_lines * 64 // dtype.itemsize,), torch.nan, dtype=dtype, device=DEVICE)
    caches = [LayerCache(numbers, shape, layer) for layer in range(LAYERS)]
    there = {name: values.to(DEVICE, dtype) for name, values in weights.items()}
    limits = InputLimits(
        MAX_ROWS, 2, NUM_BLOCKS, LENGTH, rows_together(HEADS // model.num_kv_heads), model.num_kv_heads
    )
    lowered = lower(
        program,
        there,
        caches,
        max_rows=MAX_ROWS,
        max_draws=2,
        max_positions=LENGTH,
        joins_norms=joins_norms,
        piped=piped,
    )
    inputs = StepInputs(limits, torch.zeros(1, dtype=torch.int32, device=DEVICE), DEVICE)
    streams = DirectStreams(choose) if INTERPRETED else CudaLaneStreams(DEVICE)
    ours = CudaProgram(lowered, inputs, places, BLOCK_SIZE, streams=streams, piped_rows=1)
    with torch.inference_mode():
        return torch.cat(
            [ours.run(one.sequences, one.token_ids, one.draw_rows).to("cpu", copy=True) for one in steps(SHORT)]
        )


def error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("name", ["llama3", "mixtral"])
def test_in_bfloat16_every_buffer_is_rounded_and_no_more(name: str) -> None:
    """Between them, these two have every product and every kernel that rounds."""
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    theirs = logits_of(model, program, stored, sizes_of=SHORT)
    optimized = optimize(program)
    ours = on_device(model, optimized, of_program(optimized, stored), torch.bfloat16)
    assert FLOAT32_ERROR < error(ours, theirs) < TOLERANCE


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_plain_programs_and_norms_by_themselves_compute_the_same(name: str) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    theirs = logits_of(model, program, stored, sizes_of=SHORT)
    joined = on_device(model, program, stored)
    assert error(joined, theirs) < FLOAT32_ERROR
    assert on_device(model, program, stored, joins_norms=False).equal(joined)


def test_split_operators_compute_the_same() -> None:
    model = config(**CONFIGS["gpt2"])
    program = build_program(model)
    stored = random_weights(model, program)
    split = split_operators(optimize(program), even_plan(optimize(program), 2))
    ours = on_device(model, split, of_program(split, stored))
    assert error(ours, logits_of(model, program, stored, sizes_of=SHORT)) < FLOAT32_ERROR


@pytest.mark.parametrize("name", ["llama3", "mixtral"])
def test_a_batch_in_parts_computes_the_same(name: str) -> None:
    """Every kind of kernel on a share of the batch, rows before it and behind it left alone."""
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    cut = RandomCuts(5)(optimize(program))
    ours = on_device(model, cut, of_program(cut, stored))
    assert error(ours, logits_of(model, program, stored, sizes_of=SHORT)) < FLOAT32_ERROR


@pytest.mark.parametrize("name", ["llama3", "gpt2", "mixtral"])
def test_lanes_compute_the_same_in_any_order_that_they_permit(name: str) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    piped = nano_batches(optimize(program), random_pipeline(11))
    listed, weights = replace(piped, lanes=()), of_program(piped, stored)
    plain = on_device(model, listed, weights, joins_norms=False)
    assert error(plain, logits_of(model, program, stored, sizes_of=SHORT)) < FLOAT32_ERROR
    ours = on_device(model, listed, weights, piped=piped, choose=random.Random(3).randrange)
    assert ours.equal(plain)


def test_every_kind_of_operator_has_a_launch() -> None:
    # copies out are moves of a stream of their own, ahead of the program
    assert set(LOWERINGS) == set(OperatorKind) - {OperatorKind.COPY_OUT}
