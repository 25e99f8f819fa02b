"""The reference executor: programs in plain torch, float32, on the CPU, over a paged KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch

from gpu_node import kernels
from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import BlockCopy, ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.executor import ComputedStep
from gpu_node.executors.interpreter import Device, StepInputs, run_program
from gpu_node.executors.sampler import sample
from gpu_node.executors.sizing import loaded_model
from gpu_node.graph.program import Program
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import ModelConfig
from gpu_node.models.families import build_program
from gpu_node.models.quantization import int8_weights
from gpu_node.models.weights import load_weights
from shared.config import EngineOptions, ModelSpec
from shared.model_file import checked_path

_FLOAT_BYTES = 4
NOT_FINITE = "the model's logits are not finite numbers"


class ReferenceExecutor:
    """Weights and KV blocks of one model in main memory."""

    device = "cpu"

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._program: Program | None = None
        self._memory = Device({}, ())

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Read a GGUF file or a safetensors directory, make an empty KV cache. Both models are in memory for a moment.

        Raises `ModelFileError` or `ModelTooLargeError`; then what was loaded before is still there.
        """
        checkpoint = open_checkpoint(checked_path(spec))
        config = checkpoint.config
        model = loaded_model(spec, config, self._options, _FLOAT_BYTES)
        program = build_program(config)
        weights = load_weights(checkpoint, program)
        if spec.weights == "int8":
            weights = int8_weights(weights)
        self._memory = Device(weights, ())  # the old KV cache goes before the new one comes
        self._memory = Device(weights, _empty_caches(model, config))
        self._program = program
        return model

    def submit(self, plan: StepPlan) -> ComputedStep:
        """Compute one step; logits are made only for the rows that draw a token."""
        started_s = perf_counter()
        draws = [draw for part in plan.sequences for draw in part.draws]
        with torch.inference_mode():
            self._copy_blocks(plan.copies)
            logits = self.logits(plan.sequences)
            tokens = sample(logits, draws)
        outcome = list(zip(draws, tokens, strict=True))
        result = StepResult(
            token_ids={draw.sequence_id: token for draw, token in outcome if token is not None},
            duration_s=perf_counter() - started_s,
            errors={draw.sequence_id: NOT_FINITE for draw, token in outcome if token is None},
        )
        return ComputedStep(result)

    def logits(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        assert self._program is not None
        paged = [PagedSequence(part.start, len(part.token_ids), part.block_table) for part in sequences]
        token_ids = [token for part in sequences for token in part.token_ids]
        ends = np.cumsum([len(part.token_ids) for part in sequences])
        draw_rows = [int(end) - 1 for part, end in zip(sequences, ends, strict=True) for _ in part.draws]
        inputs = StepInputs(
            token_ids=torch.tensor(token_ids, dtype=torch.int64),
            batch=paged_batch(paged, self._options.block_size),
            draw_rows=torch.tensor(draw_rows, dtype=torch.int64),
        )
        return run_program(self._program, self._memory, inputs)

    def _copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        if copies:
            sources = torch.tensor([copy.source for copy in copies])
            destinations = torch.tensor([copy.destination for copy in copies])
            for cache in self._memory.kv_caches:
                kernels.copy_blocks(cache, sources, destinations)


def _empty_caches(model: LoadedModel, config: ModelConfig) -> list[torch.Tensor]:
    """Zeros from numpy: the system gives their pages when they are first written, torch would touch them all now."""
    shape = (model.num_blocks, 2, model.block_size, config.num_kv_heads, config.head_dim)
    return [torch.from_numpy(np.zeros(shape, dtype=np.float32)) for _ in range(config.num_layers)]
