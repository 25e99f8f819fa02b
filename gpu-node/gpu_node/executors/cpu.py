"""The fast executor for processors: bfloat16 or int8 weights, bfloat16 KV cache, a C++ device of its own threads."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from ctypes import c_uint64
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter

import numpy as np
import torch

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.cells import Cells
from gpu_node.executors.cpu_lowering import UnsupportedOperatorError, lower
from gpu_node.executors.executor import model_of
from gpu_node.executors.feedback import Feedback
from gpu_node.executors.host_tier import HostTier
from gpu_node.executors.sampler import NOT_FINITE
from gpu_node.executors.sizing import device_paging, host_paging, loaded_model
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.optimize import optimize as optimized
from gpu_node.kernels.cpu import CacheShape, CpuArena, CpuDevice, CpuProgram, CpuStep, Float32s, Int32s, Limits
from gpu_node.kernels.cpu.draws import NO_DRAWS, NOT_DRAWN, CpuDraw, CpuDraws, cell_mark
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.families import build_program
from gpu_node.models.weights import load_weights
from shared.config import EngineOptions, ModelSpec
from shared.model_file import ModelFileError, checked_path

_BFLOAT16_BYTES = 2
_KV_LAYOUT = "cpu: bfloat16 [layer][head][keys, values]"


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


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A model ready to run: packed weights, operators and buffers. The same on the device and in host memory."""

    spec: ModelSpec
    model: LoadedModel
    program: CpuProgram


@dataclass(frozen=True, slots=True)
class _Model:
    """A loaded model."""

    prepared: _Prepared
    feedback: Feedback = field(default_factory=Feedback)
    cells: Cells = field(default_factory=Cells)

    @property
    def program(self) -> CpuProgram:
        return self.prepared.program

    @property
    def vocab_size(self) -> int:
        return self.prepared.model.vocab_size


class CpuExecutor:
    """Models on a CPU device, their KV blocks in the pages of one arena. Several steps may be in the queue."""

    device = "cpu"

    def __init__(
        self,
        options: EngineOptions,
        num_threads: int,
        cpus: Sequence[int] = (),
        *,
        level: str = "",
        optimize: bool = True,
        passes: Sequence[Pass] = (),
    ) -> None:
        """``cpus`` pins threads; ``level`` and ``optimize`` choose plainer kernels and the plain path, for comparison.

        ``passes`` change each model's program, behind the pass `optimize`.
        """
        self._options = options
        self._level = level
        self._optimize = optimize
        self._passes = ((optimized,) if optimize else ()) + tuple(passes)
        device, host = device_paging(options), host_paging(options)
        self._arena = CpuArena(device.num_pages, device.page_bytes)
        self._host = CpuArena(host.num_pages, host.page_bytes)
        self._device = CpuDevice(num_threads, cpus)
        self._models: dict[str, _Model] = {}
        self._left: HostTier[_Prepared] = HostTier(options.host_models, lambda prepared: prepared.program.close())
        self._close = weakref.finalize(self, _close, self._device, self._models, self._left, self._arena, self._host)

    def close(self) -> None:
        """Finish the queue, end the threads and free the memory."""
        self._close()

    def set_poll(self, serve: Callable[[], None], num_asked: c_uint64) -> None:
        """What the polls of programs look for, once the queue is empty; see `CpuDevice.set_poll`."""
        self._device.set_poll(serve, num_asked)

    def clear_poll(self) -> None:
        """Polls look for nothing any more."""
        self._device.clear_poll()

    @property
    def tiers(self) -> dict[str, str]:
        """Models on the device and in host memory."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Take a model back from host memory, or read it and pack its weights.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed.
        """
        assert spec.name not in self._models
        ready = self._left.take(spec) or self._prepare(spec)
        self._models[spec.name] = _Model(ready)
        return ready.model

    def _prepare(self, spec: ModelSpec) -> _Prepared:
        checkpoint = open_checkpoint(checked_path(spec))
        config = checkpoint.config
        model = loaded_model(spec, config, self._options, _BFLOAT16_BYTES, _KV_LAYOUT)
        program = build_program(config)
        for change in self._passes:
            program = change(program)
        weights = load_weights(checkpoint, program)
        limits = Limits(self._options.step_tokens, self._options.step_tokens, model.max_model_len, config.vocab_size)
        cache = CacheShape(config.num_layers, model.num_blocks, model.block_size, config.num_kv_heads, config.head_dim)
        num_shared_heads = config.num_heads // config.num_kv_heads
        fresh = CpuProgram(
            limits, cache, num_shared_heads, self._level, arena=self._arena, host=self._host, weights=spec.weights
        )
        try:
            lower(program, weights, fresh, model.max_model_len, round_early=self._optimize)
        except BaseException as error:
            fresh.close()
            if isinstance(error, UnsupportedOperatorError):
                raise ModelFileError(f"{checkpoint.path}: {error}") from error
            raise
        return _Prepared(spec, model, fresh)

    def unload_model(self, name: str) -> None:
        """Leave a model to host memory when the queue is empty."""
        self._device.drain()
        prepared = self._models.pop(name).prepared
        self._left.put(prepared.spec, prepared)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Copy blocks out of an arena when the queue is empty."""
        self._device.drain()
        started_s = perf_counter()
        cut = self._models[model].prepared.model
        arena, blocks_per_page = self._arena, cut.blocks_per_page
        if swapped_out:
            arena, blocks_per_page = self._host, cut.host_blocks_per_page
        content = np.empty((len(blocks), cut.block_bytes), dtype=np.uint8)
        for block, to in zip(blocks, content, strict=True):
            to[:] = arena.block(block, blocks_per_page, cut.block_bytes)
        return content.reshape(-1).data, perf_counter() - started_s

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Copy blocks into the arena when the queue is empty."""
        self._device.drain()
        started_s = perf_counter()
        cut = self._models[model].prepared.model
        given = np.frombuffer(content, dtype=np.uint8).reshape(len(blocks), cut.block_bytes)
        for block, source in zip(blocks, given, strict=True):
            self._arena.block(block, cut.blocks_per_page, cut.block_bytes)[:] = source
        return perf_counter() - started_s

    def submit(self, plan: StepPlan) -> RunningStep:
        """Queue a step behind those before it; returns at once."""
        model = model_of(plan.model, self._models)
        sequence_ids = tuple(draw.sequence_id for part in plan.sequences for draw in part.draws)
        first_cell = model.cells.take(len(sequence_ids))
        draws = CpuDraws.of(_draws(model.feedback, plan.sequences), model.vocab_size, first_cell)
        step = _step(model.feedback, plan, draws=draws)
        event = self._device.submit(model.program, step)
        model.feedback.remember({draw: cell_mark(first_cell + i) for i, draw in enumerate(sequence_ids)})
        return RunningStep(self._device, event, step, sequence_ids)

    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        loaded = model_of(model, self._models)
        num_rows = sum(bool(part.draws) for part in sequences)
        logits = np.empty((num_rows, loaded.vocab_size), dtype=np.float32)
        step = _step(loaded.feedback, StepPlan(tuple(sequences)), logits=logits)
        self._device.wait(self._device.submit(loaded.program, step))
        return torch.from_numpy(logits)


def _draws(feedback: Feedback, sequences: Sequence[ScheduledSequence]) -> list[CpuDraw]:
    draws = []
    for row, part in enumerate(part for part in sequences if part.draws):
        for draw in part.draws:
            prompt: Sequence[int] = ()
            output: Sequence[int] = ()
            if draw.sampling.has_penalties:
                prompt, output = draw.prompt_token_ids, feedback.output(part, draw)
            draws.append(CpuDraw(row, draw.sampling, draw.position, draw.choice, draw.num_top, prompt, output))
    return draws


def _step(
    feedback: Feedback,
    plan: StepPlan,
    *,
    draws: CpuDraws = NO_DRAWS,
    logits: Float32s | None = None,
) -> CpuStep:
    sequences = plan.sequences
    num_rows = _int32([len(part.token_ids) for part in sequences])
    ends = np.cumsum(num_rows, dtype=np.int32)
    return CpuStep(
        starts=_int32([part.start for part in sequences]),
        num_rows=num_rows,
        num_blocks=_int32([len(part.block_table) for part in sequences]),
        block_tables=_int32(list(chain.from_iterable(part.block_table for part in sequences))),
        token_ids=_int32(list(chain.from_iterable(map(feedback.token_ids, sequences)))),
        draw_rows=(ends - 1)[[bool(part.draws) for part in sequences]],
        copies=_pairs([(copy.source, copy.destination) for copy in plan.copies]),
        swaps_out=_pairs([(swap.device_block, swap.host_block) for swap in plan.swaps_out]),
        swaps_in=_pairs([(swap.device_block, swap.host_block) for swap in plan.swaps_in]),
        logits=logits,
        draws=draws,
    )


def _int32(values: list[int]) -> Int32s:
    return np.array(values, dtype=np.int32)


def _pairs(values: list[tuple[int, int]]) -> Int32s:
    return np.array(values, dtype=np.int32).reshape(-1, 2)


def _close(
    device: CpuDevice, models: dict[str, _Model], left: HostTier[_Prepared], arena: CpuArena, host: CpuArena
) -> None:
    device.close()
    for model in models.values():
        model.program.close()
    models.clear()
    left.clear()
    arena.close()
    host.close()
