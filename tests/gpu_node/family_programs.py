"""A small model of each family: its program, random weights, and a few steps on the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.reference.interpreter import InterpreterInputs, ReferenceDevice, run_program
from gpu_node.graph.program import Program
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.models.config import Family, ModelConfig, Rope

HEADS, KV_HEADS, HEAD_DIM, LAYERS, VOCAB, LENGTH = 4, 2, 24, 2, 90, 80
BLOCK_SIZE, NUM_BLOCKS = 16, 20

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


@dataclass(frozen=True)
class FamilyStep:
    """The rows of one step, and which of them draw."""

    sequences: list[PagedSequence]
    token_ids: list[int]
    draw_rows: list[int]

    @property
    def num_singles(self) -> int:
        """Sequences of one row at its end."""
        before = (number for number, one in enumerate(reversed(self.sequences)) if one.num_rows != 1)
        return next(before, len(self.sequences))


LONG: Final = (50, 9, 40, 20)
"""Rows of the first step's two sequences, and those of the second one's two further chunks."""
SHORT: Final = (9, 2, 3, 2)
"""For a device on which every row takes its time."""


def steps(sizes_of: tuple[int, int, int, int] = LONG) -> list[FamilyStep]:
    """A prompt that draws beside a chunk that does not; then neither draws; then both."""
    tables = [[3, 1, 4, 9, 2], [5, 8, 7, 6, 10]]
    prompt, first, second, third = sizes_of
    sizes = [[(0, prompt), (0, first)], [(first, second), (prompt, 1)], [(first + second, third), (prompt + 1, 1)]]
    tables_of = [tables, tables[::-1], tables[::-1]]
    draw_rows = [[prompt - 1], [], [third - 1, third]]
    numbers = np.random.default_rng(4)
    found = []
    for step, those, rows in zip(sizes, tables_of, draw_rows, strict=True):
        sequences = [PagedSequence(*size, table) for size, table in zip(step, those, strict=True)]
        num_rows = sum(sequence.num_rows for sequence in sequences)
        found.append(FamilyStep(sequences, numbers.integers(0, VOCAB, num_rows).tolist(), rows))
    return found


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


def of_program(program: Program, stored: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that a changed program asks for, of those that are stored."""
    return {
        weight.name: torch.cat(
            [stored[piece.tensor][tuple(slice(*bounds) for bounds in piece.ranges)] for piece in weight.sources]
        )
        for weight in program.weights
    }


def logits_of(
    model: ModelConfig,
    program: Program,
    weights: dict[str, torch.Tensor],
    group: DeviceGroup = ALONE,
    sizes_of: tuple[int, int, int, int] = LONG,
    num_remote: int = 0,
    choose: Callable[[int], int] | None = None,
) -> torch.Tensor:
    """Of all draws of all steps, by the interpreter: float32 [3, vocabulary].

    The last ``num_remote`` single rows of a step count as remote, though their keys and values lie here too.
    ``choose``: which operator comes next, of those that lanes permit.
    """
    shape = (NUM_BLOCKS, 2, BLOCK_SIZE, model.num_kv_heads // group.world, HEAD_DIM)
    device = ReferenceDevice(weights, [torch.zeros(shape) for _ in range(LAYERS)], group)
    outputs = []
    for step in steps(sizes_of):
        batch = paged_batch(step.sequences, BLOCK_SIZE, min(num_remote, step.num_singles))
        inputs = InterpreterInputs(torch.tensor(step.token_ids), batch, torch.tensor(step.draw_rows, dtype=torch.int64))
        with torch.inference_mode():
            outputs.append(run_program(program, device, inputs, choose))
    assert [len(output) for output in outputs] == [1, 0, 2]
    return torch.cat(outputs)
