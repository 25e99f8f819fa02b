"""A small model's program on the device, over an arena full of numbers, and the steps that tests give it.

Contexts are up to 80 tokens: longer than the tile of attention.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from gpu_node.executors.cuda.program.inputs import InputLimits, StepInputs
from gpu_node.executors.cuda.program.lane_streams import lane_streams
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving, nothing
from gpu_node.executors.cuda.program.lowered import Lowered
from gpu_node.executors.cuda.program.lowering import lower
from gpu_node.executors.cuda.program.program import MAX_PROMPTS, CudaProgram
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention.task_ring import PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places
from gpu_node.kernels.triton.launch import num_processors
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from shared.config.pipelines.pipeline_file import PipelineFile
from tests.gpu_node.family_programs import HEAD_DIM, LAYERS, of_program, random_weights
from tests.gpu_node.kernels.triton.buffers import DEVICE

BLOCK_SIZE, NUM_BLOCKS, LENGTH, MAX_SEQUENCES, NUM_CELLS = 8, 20, 80, 4, 4


class DeviceProgram:
    """The same numbers in weights, arena and cells wherever it is made."""

    def __init__(
        self,
        model: ModelConfig,
        change: Pass,
        pipeline: PipelineFile | None = None,
        max_prompts: int = MAX_PROMPTS,
        asking: AskedDevice | None = None,
        meanwhile: Callable[[], object] = nothing,
    ) -> None:
        """With a ``pipeline``, its largest steps go through that. ``max_prompts``: of a mixed step that is replayed.

        ``asking``: who has remote sequences, and does ``meanwhile`` when it is waited for.
        """
        plain = build_program(model)
        program = change(plain)
        weights = of_program(program, random_weights(model, plain))
        shape = CacheShape(LAYERS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
        self.block_numbers = shape.block_lines(4) * 16
        self.places = Places(NUM_BLOCKS * shape.block_lines(4), shape.block_lines(4))
        self.arena = torch.randn(NUM_BLOCKS * self.block_numbers).to(DEVICE)
        self.caches = [LayerCache(self.arena, shape, layer) for layer in range(LAYERS)]
        self.tasks = Tasks(
            PollCounters.new(num_processors(DEVICE), 2, DEVICE),
            TaskRing.new(shape, 2, 1, LENGTH // BLOCK_SIZE, model.num_heads * HEAD_DIM, self.arena),
        )
        self.lowered: Lowered = lower(
            program,
            {name: values.to(DEVICE) for name, values in weights.items()},
            self.caches,
            max_rows=MAX_SEQUENCES,
            max_draws=MAX_SEQUENCES,
            max_positions=LENGTH,
            piped=None if pipeline is None else nano_batches(program, pipeline),
            serving=Serving(self.tasks, meanwhile),
            asking=asking,
        )
        self.cells = torch.zeros(NUM_CELLS, dtype=torch.int32, device=DEVICE)
        together = 64 // (model.num_heads // model.num_kv_heads)
        limits = InputLimits(MAX_SEQUENCES, MAX_SEQUENCES, LENGTH // BLOCK_SIZE, LENGTH, together, model.num_kv_heads)
        self.program = CudaProgram(
            self.lowered,
            StepInputs(limits, self.cells, DEVICE),
            self.places,
            BLOCK_SIZE,
            streams=lane_streams(DEVICE),
            piped_rows=MAX_SEQUENCES,
            max_prompts=max_prompts,
        )

    def poison(self) -> None:
        """Nothing that a step left behind may be read by the next one."""
        for buffer in self.lowered.buffers.values():
            buffer.fill_(torch.nan)

    def run(
        self,
        sequences: list[PagedSequence],
        token_ids: list[int],
        draw_rows: list[int] | None = None,
        num_remote: int = 0,
    ) -> torch.Tensor:
        """The logits of these rows, of each sequence's last one where none are named, in memory of their own."""
        ends = torch.tensor([sequence.num_rows for sequence in sequences]).cumsum(0)
        rows = (ends - 1).tolist() if draw_rows is None else draw_rows
        with torch.inference_mode():
            return self.program.run(sequences, token_ids, rows, num_remote).to("cpu", copy=True)


def decodes(numbers: random.Random, num_sequences: int) -> list[PagedSequence]:
    """Single rows behind contexts of any length, over blocks of their own that lie anywhere."""
    blocks = numbers.sample(range(NUM_BLOCKS), NUM_BLOCKS)
    found = []
    for left in range(num_sequences, 0, -1):
        most_blocks = min(LENGTH // BLOCK_SIZE, len(blocks) - left + 1)
        start = numbers.randrange(most_blocks * BLOCK_SIZE)
        num_blocks = start // BLOCK_SIZE + 1
        found.append(PagedSequence(start, 1, [blocks.pop() for _ in range(num_blocks)]))
    return found
