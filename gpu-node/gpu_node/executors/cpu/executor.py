"""The fast executor for processors: bfloat16 or int8 weights, bfloat16 KV cache, a C++ device of its own threads."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from gpu_node.engine.border.executor import model_of
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.engine.border.sizing import device_paging, host_paging, loaded_model
from gpu_node.executors.cpu.head_check import check_heads
from gpu_node.executors.cpu.links import CpuLinks
from gpu_node.executors.cpu.lowering import LanePlace, lower
from gpu_node.executors.cpu.step import RunningStep, step_of
from gpu_node.executors.cpu.unsupported import UnsupportedOperatorError
from gpu_node.executors.draws.cells import Cells
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.executors.draws.token_draws import draws_of
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.memory.kv_identity import adapter_weights, image_layout, kv_identity
from gpu_node.executors.piped import copies_in_lanes, piped
from gpu_node.graph.passes.adapt import adapt
from gpu_node.graph.passes.draft import Pass, changed
from gpu_node.graph.passes.optimize import optimize as optimized
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuProgram,
    Limits,
    kernels_name,
)
from gpu_node.kernels.cpu.draws import CpuDraws
from gpu_node.kernels.cpu.library.blocks import read_blocks
from gpu_node.kernels.link_file import FOLDER
from gpu_node.kernels.token_draw import cell_mark
from gpu_node.models.adapters.adapters import open_adapters
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.encoder_check import check_encoder
from gpu_node.models.served_program import served_program
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.weights.unread_weights import UnreadWeights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from shared.files.encoder import step_rows
from shared.files.model_file import ModelFileError, checked_path

_BFLOAT16_BYTES = 2
_KV_LAYOUT = "cpu: bfloat16 [layer][head][keys, values]"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A model ready to run: packed weights, operators and buffers. The same on the device and in host memory."""

    spec: ModelSpec
    model: LoadedModel
    program: CpuProgram
    lane_places: Mapping[int, LanePlace]
    """Of the operators of its program in a pipeline."""
    num_columns: int
    """Of its program's result: the vocabulary, or what a model that embeds or scores gives."""


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
    def num_columns(self) -> int:
        return self.prepared.num_columns

    def embeddings(self, num_draws: int) -> Float32s | None:
        """Room for those of a step's draws, float32 [draws, columns]; None where the model gives tokens."""
        return np.empty((num_draws, self.num_columns), dtype=np.float32) if self.prepared.model.gives_rows else None


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
        lane_passes: Sequence[Pass] | None = None,
        link_folder: Path = FOLDER,
        pipelines: Pipelines = NO_PIPELINES,
    ) -> None:
        """``cpus`` pins threads; ``level`` and ``optimize`` choose plainer kernels and the plain path, for comparison.

        ``passes`` change each model's program, behind the pass `optimize`; ``pipelines`` are for what comes of that,
        or of ``lane_passes`` in their place.
        Links to other engines lie in ``link_folder``.
        """
        self._options = options
        self._level = level
        self._optimize = optimize
        self._name = cpu_name(num_threads)
        self._pipelines = pipelines
        self._passes = tuple(passes)
        self._lane_passes = self._passes if lane_passes is None else tuple(lane_passes)
        device, host = device_paging(options), host_paging(options)
        self._arena = CpuArena(device.num_pages, device.page_bytes)
        self._host = CpuArena(host.num_pages, host.page_bytes)
        self._device = CpuDevice(num_threads, cpus)
        self._models: dict[str, _Model] = {}
        self._left: HostTier[_Prepared] = HostTier(options.host_models, lambda prepared: prepared.program.close())
        self._ready: list[_Prepared] = []
        models = self._models
        self.links = CpuLinks(
            self._device,
            self._arena,
            level,
            lambda: {name: model.program for name, model in models.items()},
            link_folder,
            splits=options.offload_control == "poll_split",
        )
        self._close = weakref.finalize(
            self, _close, self.links, self._device, self._models, self._left, self._ready, self._arena, self._host
        )

    def close(self) -> None:
        """Finish the queue, end the threads and free the memory."""
        self._close()

    @property
    def tiers(self) -> dict[str, str]:
        """Models on the device and in host memory."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Take a model back from host memory, or read it and pack its weights.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed.
        """
        assert spec.name not in self._models or spec.name == instead_of
        ready = self._left.take(spec) or self._take_ready(spec) or self._prepare(spec)
        if instead_of == spec.name:
            self._take_off(instead_of).program.close()
        elif instead_of is not None:
            self.unload_model(instead_of)
        self._models[spec.name] = _Model(ready)
        return ready.model

    def prepare(self, spec: ModelSpec) -> None:
        """As `PreparesBeside`: a program is its own until a step of it is submitted."""
        self._ready.append(self._prepare(spec))

    def _take_ready(self, spec: ModelSpec) -> _Prepared | None:
        found = None
        while self._ready:
            one = self._ready.pop()
            if found is None and one.spec == spec:
                found = one
            else:
                one.program.close()
        return found

    def _prepare(self, spec: ModelSpec) -> _Prepared:
        checkpoint = open_checkpoint(checked_path(spec))
        config = checkpoint.config
        check_encoder(spec, checkpoint, self._options)
        check_heads(checkpoint)
        plain = served_program(spec, checkpoint)
        adapters = open_adapters(spec, checkpoint, plain)  # first: what cannot be used of them is told as theirs
        salt = kv_identity(spec, self._options, _KV_LAYOUT)
        model = loaded_model(
            spec,
            config,
            self._options,
            _BFLOAT16_BYTES,
            image_layout(spec, _KV_LAYOUT),
            kv_identity=salt,
            adapter_layouts=adapter_weights(spec),
            checks_guesses=True,
        )
        adapted = adapt(optimized(plain) if self._optimize else plain, adapters.ranks, len(adapters.names))
        program = changed(adapted, self._passes)
        in_lanes = piped(
            program if self._lane_passes == self._passes else changed(adapted, self._lane_passes),
            spec,
            self._pipelines,
            self._name,
            kernels=kernels_name(self._level),
            copies_out=copies_in_lanes(self._options),
        )
        weights = UnreadWeights(checkpoint, program, spec.load_format, adapters, read_blocks)
        num_rows = step_rows(self._options, is_encoder=config.is_encoder)
        limits = Limits(num_rows, num_rows, model.max_model_len, config.vocab_size)
        cache = CpuCacheShape(
            config.num_layers, model.num_blocks, model.block_size, config.num_kv_heads, config.head_dim
        )
        num_shared_heads = config.num_heads // config.num_kv_heads
        fresh = CpuProgram(
            limits, cache, num_shared_heads, self._level, arena=self._arena, host=self._host, weights=spec.weights
        )
        try:
            places = lower(
                program, weights, fresh, model.max_model_len, piped=in_lanes.program, round_early=self._optimize
            )
        except BaseException as error:
            fresh.close()
            if isinstance(error, UnsupportedOperatorError):
                raise ModelFileError(f"{checkpoint.path}: {error}") from error
            raise
        return _Prepared(spec, in_lanes.told(model), fresh, places, program.num_result_columns)

    def unload_model(self, name: str) -> None:
        """Leave a model to host memory when the queue is empty."""
        prepared = self._take_off(name)
        self._left.put(prepared.spec, prepared)

    def _take_off(self, name: str) -> _Prepared:
        self._device.drain()
        return self._models.pop(name).prepared

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

    def host_block(self, model: str, block: int) -> list[memoryview]:
        """One piece of the host's arena."""
        cut = self._models[model].prepared.model
        return [self._host.block(block, cut.host_blocks_per_page, cut.block_bytes).data]

    def submit(self, plan: StepPlan) -> RunningStep:
        """Queue a step behind those before it; returns at once."""
        model = model_of(plan.model, self._models)
        sequence_ids = tuple(draw.sequence_id for part in plan.sequences for draw in part.draws)
        first_cell = model.cells.take(len(sequence_ids))
        draws = CpuDraws.of(draws_of(model.feedback, plan.sequences), model.num_columns, first_cell)
        step = step_of(
            model.feedback,
            plan,
            draws=draws,
            logits=model.embeddings(len(sequence_ids)),
            remotes=self.links.remotes_of(plan, model.prepared.spec.name),
            in_lanes=model.prepared.model.is_piped(plan.num_tokens),
            moves_beside=self._options.overlap_swaps,
        )
        event = self._device.submit(model.program, step)
        model.feedback.remember({draw: cell_mark(first_cell + i) for i, draw in enumerate(sequence_ids)})
        return RunningStep(self._device, event, step, sequence_ids, model.num_columns)

    def give_masks(self, step: RunningStep, masks: Mapping[int, bytes]) -> None:
        """As `LateMasks`."""
        step.give_masks(masks)

    def lane_times(self, model: str) -> dict[int, tuple[float, float]]:
        """When operators of the model's program in a pipeline began and ended in the last step that went through it.

        In seconds, by index; those left out that cost nothing. The device has nothing to do.
        """
        places = self._models[model].prepared.lane_places
        most = max((place.end for place in places.values()), default=0)
        times = {lane: self._device.lane_times(lane, most) for lane in {place.lane for place in places.values()}}
        return {
            index: (times[place.lane][place.first][0], times[place.lane][place.end - 1][1])
            for index, place in places.items()
            if place.first < place.end
        }

    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> Float32s:
        """Write the sequences' keys and values; returns float32 [rows that draw, columns of the program's result],
        in their order: logits or, of a model that embeds, hidden states."""
        loaded = model_of(model, self._models)
        num_rows = sum(part.num_draw_rows for part in sequences)
        logits = np.empty((num_rows, loaded.num_columns), dtype=np.float32)
        step = step_of(loaded.feedback, StepPlan(tuple(sequences)), logits=logits)
        self._device.wait(self._device.submit(loaded.program, step))
        return logits


def _close(
    links: CpuLinks,
    device: CpuDevice,
    models: dict[str, _Model],
    left: HostTier[_Prepared],
    ready: list[_Prepared],
    arena: CpuArena,
    host: CpuArena,
) -> None:
    links.close()
    device.close()
    for model in models.values():
        model.program.close()
    models.clear()
    left.clear()
    while ready:
        ready.pop().program.close()
    arena.close()
    host.close()
