"""The fast executor for processors: bfloat16 weights and KV cache, a C++ device that runs steps without Python."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import BlockCopy, ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.cells import Cells
from gpu_node.executors.cpu_lowering import UnsupportedOperatorError, lower
from gpu_node.executors.feedback import Feedback
from gpu_node.executors.penalties import has_penalties
from gpu_node.executors.sampler import NOT_FINITE
from gpu_node.executors.sizing import loaded_model
from gpu_node.kernels.cpu import CacheShape, CpuDevice, CpuProgram, CpuStep, Float32s, Int32s, Limits
from gpu_node.kernels.cpu_draws import NO_DRAWS, NOT_DRAWN, CpuDraw, CpuDraws, cell_mark
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
    sequence_ids: tuple[int, ...]
    """Of each draw: who gets the token."""

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self.device.is_done(self.event)

    def result(self) -> StepResult:
        """Wait for the step; its tokens were drawn on the device."""
        self.device.wait(self.event)
        duration_s, idle_s = self.device.times(self.event)
        draws = self.step.draws
        tokens = list(zip(self.sequence_ids, draws.tokens.tolist(), strict=True))
        logprobs = zip(self.sequence_ids, draws.token_logprobs(), strict=True)
        return StepResult(
            token_ids={sequence_id: token for sequence_id, token in tokens if token != NOT_DRAWN},
            duration_s=duration_s,
            idle_s=idle_s,
            errors={sequence_id: NOT_FINITE for sequence_id, token in tokens if token == NOT_DRAWN},
            logprobs={sequence_id: logprob for sequence_id, logprob in logprobs if logprob is not None},
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
        self._feedback, self._cells = Feedback(), Cells()
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
        fresh = CpuProgram(limits, cache, config.num_heads // config.num_kv_heads, self._level)
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
        self._feedback = Feedback()
        return model

    def submit(self, plan: StepPlan) -> RunningStep:
        """Queue a step behind those before it; returns at once."""
        assert self._program is not None
        sequence_ids = tuple(draw.sequence_id for part in plan.sequences for draw in part.draws)
        first_cell = self._cells.take(len(sequence_ids))
        draws = CpuDraws.of(self._draws(plan.sequences), self._vocab_size, first_cell)
        step = self._step(plan.sequences, plan.copies, draws=draws)
        event = self._device.submit(self._program, step)
        self._feedback.remember({draw: cell_mark(first_cell + i) for i, draw in enumerate(sequence_ids)})
        return RunningStep(self._device, event, step, sequence_ids)

    def logits(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        assert self._program is not None
        num_rows = sum(bool(part.draws) for part in sequences)
        logits = np.empty((num_rows, self._vocab_size), dtype=np.float32)
        step = self._step(sequences, (), logits=logits)
        self._device.wait(self._device.submit(self._program, step))
        return torch.from_numpy(logits)

    def _draws(self, sequences: Sequence[ScheduledSequence]) -> list[CpuDraw]:
        draws = []
        for row, part in enumerate(part for part in sequences if part.draws):
            for draw in part.draws:
                prompt: Sequence[int] = ()
                output: Sequence[int] = ()
                if has_penalties(draw.sampling):
                    prompt, output = draw.prompt_token_ids, self._feedback.output(part, draw)
                draws.append(CpuDraw(row, draw.sampling, draw.position, draw.choice, draw.num_top, prompt, output))
        return draws

    def _step(
        self,
        sequences: Sequence[ScheduledSequence],
        copies: Sequence[BlockCopy],
        *,
        draws: CpuDraws = NO_DRAWS,
        logits: Float32s | None = None,
    ) -> CpuStep:
        num_rows = _int32([len(part.token_ids) for part in sequences])
        ends = np.cumsum(num_rows, dtype=np.int32)
        return CpuStep(
            starts=_int32([part.start for part in sequences]),
            num_rows=num_rows,
            num_blocks=_int32([len(part.block_table) for part in sequences]),
            block_tables=_int32(list(chain.from_iterable(part.block_table for part in sequences))),
            token_ids=_int32(list(chain.from_iterable(map(self._feedback.token_ids, sequences)))),
            draw_rows=(ends - 1)[[bool(part.draws) for part in sequences]],
            copies=_int32([(copy.source, copy.destination) for copy in copies]),
            logits=logits,
            draws=draws,
        )


def _int32(values: list[int] | list[tuple[int, int]]) -> Int32s:
    return np.array(values, dtype=np.int32)


def _close(device: CpuDevice, programs: list[CpuProgram]) -> None:
    device.close()
    for program in programs:
        program.close()
    programs.clear()
