"""Programs of every family on the CPU device, against the interpreter with the same weights, rounded to bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_node.executors.cpu_lowering import UnsupportedOperatorError, lower
from gpu_node.executors.interpreter import Device, StepInputs, run_program
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.polls import insert_polls
from gpu_node.graph.passes.split import even_plan, split_operators
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import Program
from gpu_node.graph.share import Share
from gpu_node.kernels import cpu
from gpu_node.kernels.cpu import CacheShape, CpuDevice, CpuStep, Limits
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.families import build_program
from tests.engine.own_arena import program_with_arena

HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB, LENGTH = 4, 2, 24, 2, 90, 80
BLOCK_SIZE, NUM_BLOCKS = 16, 20
TOLERANCE = 0.03
"""Some ten products of inputs rounded to 8 bits, one behind the other, in weights of ordinary size."""

CONFIGS: dict[str, dict[str, object]] = {
    "llama3": {
        "family": Family.LLAMA,
        "rope": Rope(10_000.0, tuple(1.0 + 0.5 * pair for pair in range(HEAD_DIM // 2))),
    },
    "mistral": {"family": Family.MISTRAL, "windows": (7,) * LAYERS},
    "qwen2": {"family": Family.QWEN2, "windows": (None, 20)},
    "qwen3": {"family": Family.QWEN3},
    "opt": {"family": Family.OPT, "rope": None},
    "gpt2": {"family": Family.GPT2, "rope": None},
    "mixtral": {"family": Family.MIXTRAL, "num_experts": 4, "num_experts_per_token": 2},
}


def config(**different: object) -> ModelConfig:
    numbers = {
        "num_layers": LAYERS,
        "hidden_size": 64,
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": 72,
        "vocab_size": VOCAB,
        "context_length": LENGTH,
        "norm_epsilon": 1e-5,
        "tied_embedding": True,
        "eos_token_ids": frozenset[int](),
        "rope": Rope(10_000.0),
    }
    return ModelConfig(**numbers | different)  # type: ignore[arg-type]


def random_weights(model: ModelConfig, program: Program) -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    weights = {}
    for weight in program.weights:
        values = torch.randn(weight.shape) * weight.shape[-1] ** -0.5
        if len(weight.shape) == 1 and not weight.name.endswith("_bias"):
            values = 1 + 0.2 * torch.randn(weight.shape)
        weights[weight.name] = values.bfloat16().float()
    if model.rope is not None and model.rope.factors:
        weights["rope_factors"] = torch.tensor(model.rope.factors)
    return weights


def steps() -> list[tuple[list[PagedSequence], list[int]]]:
    """A prompt and a chunk of another; then a decode and the rest of the other."""
    tables = [[3, 1, 4, 9, 2], [5, 8, 7, 6, 10]]
    sizes = [[(0, 50), (0, 9)], [(50, 1), (9, 60)]]
    numbers = np.random.default_rng(4)
    parts = [[PagedSequence(*size, table) for size, table in zip(step, tables, strict=True)] for step in sizes]
    return [(part, numbers.integers(0, VOCAB, sum(s.num_rows for s in part)).tolist()) for part in parts]


def int32(values: list[int]) -> cpu.Int32s:
    return np.array(values, dtype=np.int32)


def on_device(
    device: CpuDevice,
    model: ModelConfig,
    program: Program,
    weights: dict[str, torch.Tensor],
    *,
    round_early: bool = True,
) -> list[torch.Tensor]:
    cache = CacheShape(LAYERS, NUM_BLOCKS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    limits = Limits(128, 128, LENGTH, VOCAB)
    outputs = []
    with program_with_arena(limits, cache, HEADS // model.num_kv_heads) as (lowered, _, _):
        lower(program, weights, lowered, LENGTH, round_early=round_early)
        for sequences, token_ids in steps():
            rows = int32([sequence.num_rows for sequence in sequences])
            logits = np.empty((len(rows), VOCAB), dtype=np.float32)
            step = CpuStep(
                starts=int32([sequence.start for sequence in sequences]),
                num_rows=rows,
                num_blocks=int32([len(sequence.block_table) for sequence in sequences]),
                block_tables=int32([block for sequence in sequences for block in sequence.block_table]),
                token_ids=int32(token_ids),
                draw_rows=np.cumsum(rows, dtype=np.int32) - 1,
                copies=int32([]),
                logits=logits,
            )
            device.wait(device.submit(lowered, step))
            outputs.append(torch.from_numpy(logits))
    return outputs


def expected(model: ModelConfig, program: Program, weights: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    shape = (NUM_BLOCKS, 2, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    memory = Device(weights, [torch.zeros(shape) for _ in range(LAYERS)])
    outputs = []
    for sequences, token_ids in steps():
        ends = np.cumsum([sequence.num_rows for sequence in sequences])
        inputs = StepInputs(torch.tensor(token_ids), paged_batch(sequences, BLOCK_SIZE), torch.from_numpy(ends - 1))
        with torch.inference_mode():
            outputs.append(run_program(program, memory, inputs))
    return outputs


def of_program(program: Program, stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that a changed program asks for, of those that are stored."""
    return {
        weight.name: torch.cat(
            [stored[piece.tensor][tuple(slice(*bounds) for bounds in piece.ranges)] for piece in weight.sources]
        )
        for weight in program.weights
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_a_program_computes_the_same_on_the_device(name: str) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    fused = fuse(program)
    split = split_operators(fused, even_plan(fused, 3))
    with CpuDevice(2) as device:
        plain = on_device(device, model, program, stored, round_early=False)
        changed = [
            on_device(device, model, other, of_program(other, stored))
            for other in (program, fused, split, insert_polls(split))
        ]
    for ours, theirs in zip(plain, expected(model, program, stored), strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < TOLERANCE
    for outputs in changed:
        assert all(ours.equal(plainly) for ours, plainly in zip(outputs, plain, strict=True))


def test_what_the_device_has_no_kernel_for_is_refused_by_name() -> None:
    model = config(family=Family.LLAMA)
    program = build_program(model)
    stored = random_weights(model, program)
    divided = tensor_parallel(program, 0, 2)
    halves = [replace(one, share=Share(half, 2)) for one in program.operators[:1] for half in range(2)]
    parts = replace(program, operators=(*halves, *program.operators[1:]))
    with CpuDevice(1) as device:
        with pytest.raises(UnsupportedOperatorError, match="no kernel for 'all_reduce'; the reference executor has"):
            on_device(device, model, divided, of_program(divided, stored))
        with pytest.raises(UnsupportedOperatorError, match="no kernel for 'embedding' on a share of the batch"):
            on_device(device, model, parts, stored)
    for ours, theirs in zip(expected(model, parts, stored), expected(model, program, stored), strict=True):
        assert ours.equal(theirs)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_changed_program_computes_the_same_on_the_reference(name: str) -> None:
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    fused = fuse(program)
    for changed in (
        fused,
        split_operators(program, even_plan(program, 2)),
        split_operators(fused, even_plan(fused, 5)),
    ):
        outputs = expected(model, changed, of_program(changed, stored))
        for ours, theirs in zip(outputs, expected(model, program, stored), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_in_parts_gives_the_same_on_the_reference(name: str) -> None:
    """Every operator twice or thrice, each over its share of the sequences: what nano-batches will be made of."""
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    fused = fuse(program)
    for count in (2, 3):
        pieces = [replace(one, share=Share(index, count)) for one in fused.operators for index in range(count)]
        parts = replace(fused, operators=tuple(pieces))
        parts.check()
        outputs = expected(model, parts, of_program(parts, stored))
        for ours, theirs in zip(outputs, expected(model, program, stored), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
