"""The fast executor for processors: bfloat16 or int8 weights, bfloat16 KV cache, a C++ device of its own threads."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from time import perf_counter

import numpy as np
import torch

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import BlockCopy, Draw, ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.cpu_lowering import UnsupportedOperatorError, lower
from gpu_node.executors.reference import NOT_FINITE
from gpu_node.executors.sampler import sample
from gpu_node.executors.sizing import loaded_model
from gpu_node.kernels.cpu import CacheShape, CpuDevice, CpuProgram, CpuStep, Int32s, Limits
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.families import build_program
from gpu_node.models.weights import load_weights
from shared.config import EngineOptions, ModelSpec
from shared.model_file import ModelFileError, checked_path

_BFLOAT16_BYTES = 2


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A step in the device's queue."""

    device: CpuDevice
    event: int
    step: CpuStep
    """Keeps the memory alive that the device writes to."""
    draws: tuple[Draw, ...]
    """Of each row of the logits."""
    submitted_s: float

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self.device.is_done(self.event)

    def result(self) -> StepResult:
        """Wait for the step and draw its tokens; greedy ones were drawn on the device."""
        self.device.wait(self.event)
        tokens: list[int | None] = [None if token < 0 else token for token in self.step.tokens.tolist()]
        sampled = [row for row, draw in enumerate(self.draws) if draw.sampling.temperature != 0]
        if sampled:
            assert self.step.logits is not None
            logits = torch.from_numpy(self.step.logits)[sampled]
            with torch.inference_mode():
                drawn = sample(logits, [self.draws[row] for row in sampled])
            for row, token in zip(sampled, drawn, strict=True):
                tokens[row] = token
        outcome = [(draw.sequence_id, token) for draw, token in zip(self.draws, tokens, strict=True)]
        return StepResult(
            token_ids={sequence_id: token for sequence_id, token in outcome if token is not None},
            duration_s=perf_counter() - self.submitted_s,
            errors={sequence_id: NOT_FINITE for sequence_id, token in outcome if token is None},
        )


class CpuExecutor:
    """Weights and KV blocks of one model on a CPU device. `submit` and `collect` let several steps be in the queue."""

    device = "cpu"

    def __init__(
        self,
        options: EngineOptions,
        num_threads: int,
        cpus: Sequence[int] = (),
        *,
        level: str = "",
        fuse: bool = True,
    ) -> None:
        """``cpus`` pins threads; ``level`` and ``fuse`` choose plainer kernels and the plain path, for comparison."""
        self._options = options
        self._level = level
        self._fuse = fuse
        self._program: CpuProgram | None = None
        self._vocab_size = 0
        self._device = CpuDevice(num_threads, cpus)
        self._programs: list[CpuProgram] = []  # the loaded one; a list, so that `_close` sees what is in it then
        self._close = weakref.finalize(self, _close, self._device, self._programs)

    def close(self) -> None:
        """Finish the queue, end the threads and free the memory."""
        self._close()

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Read a model, pack its weights and make an empty KV cache. Both models are in memory for a moment.

        Raises `ModelFileError` or `ModelTooLargeError`; then what was loaded before is still there.
        """
        checkpoint = open_checkpoint(checked_path(spec))
        config = checkpoint.config
        model = loaded_model(spec, config, self._options, _BFLOAT16_BYTES)
        program = build_program(config)
        weights = load_weights(checkpoint, program)
        limits = Limits(self._options.step_tokens, self._options.step_tokens, model.max_model_len, config.vocab_size)
        cache = CacheShape(config.num_layers, model.num_blocks, model.block_size, config.num_kv_heads, config.head_dim)
        num_shared_heads = config.num_heads // config.num_kv_heads
        fresh = CpuProgram(limits, cache, num_shared_heads, self._level, weights=spec.weights)
        try:
            lower(program, weights, fresh, model.max_model_len, fuse=self._fuse)
        except BaseException as error:
            fresh.close()
            if isinstance(error, UnsupportedOperatorError):
                raise ModelFileError(f"{checkpoint.path}: {error}") from error
            raise
        self._device.drain()
        for old in self._programs:
            old.close()
        self._programs[:] = [fresh]
        self._program, self._vocab_size = fresh, config.vocab_size
        return model

    def submit(self, plan: StepPlan) -> RunningStep:
        """Queue a step behind those before it; returns at once."""
        submitted_s = perf_counter()
        draws = tuple(draw for part in plan.sequences for draw in part.draws)
        needs_logits = any(draw.sampling.temperature != 0 for draw in draws)
        step = self._step(plan.sequences, plan.copies, needs_logits=needs_logits)
        assert self._program is not None
        event = self._device.submit(self._program, step)
        return RunningStep(self._device, event, step, draws, submitted_s)

    def logits(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        step = self._step(sequences, (), needs_logits=True)
        assert self._program is not None
        assert step.logits is not None
        self._device.wait(self._device.submit(self._program, step))
        return torch.from_numpy(step.logits)

    def _step(
        self, sequences: Sequence[ScheduledSequence], copies: Sequence[BlockCopy], *, needs_logits: bool
    ) -> CpuStep:
        num_rows = _int32([len(part.token_ids) for part in sequences])
        ends = np.cumsum(num_rows, dtype=np.int32)
        draw_rows = np.repeat(ends - 1, [len(part.draws) for part in sequences])
        num_draws = len(draw_rows)
        return CpuStep(
            starts=_int32([part.start for part in sequences]),
            num_rows=num_rows,
            num_blocks=_int32([len(part.block_table) for part in sequences]),
            block_tables=_int32(list(chain.from_iterable(part.block_table for part in sequences))),
            token_ids=_int32(list(chain.from_iterable(part.token_ids for part in sequences))),
            draw_rows=draw_rows,
            copies=_int32([(copy.source, copy.destination) for copy in copies]),
            tokens=np.empty(num_draws, dtype=np.int32),
            logits=np.empty((num_draws, self._vocab_size), dtype=np.float32) if needs_logits else None,
        )


def _int32(values: list[int] | list[tuple[int, int]]) -> Int32s:
    return np.array(values, dtype=np.int32)


def _close(device: CpuDevice, programs: list[CpuProgram]) -> None:
    device.close()
    for program in programs:
        program.close()
    programs.clear()
