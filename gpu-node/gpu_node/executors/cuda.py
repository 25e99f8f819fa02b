"""The executor for NVIDIA devices: each operator of a program is a launch, queued without waiting for the one before.

Runs by Triton's interpreter as well, on tensors of the CPU: the same launches, without a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import perf_counter

import torch

from gpu_node.engine.model import LoadedModel
from gpu_node.engine.plan import ScheduledSequence, StepPlan
from gpu_node.executors.cells import Cells
from gpu_node.executors.collectives import ALONE, Group
from gpu_node.executors.cuda_arena import CudaArena
from gpu_node.executors.cuda_blocks import CudaBlocks
from gpu_node.executors.cuda_draws import Logprobs, RunningStep, TokenCells
from gpu_node.executors.cuda_lanes import copy_stream, lanes
from gpu_node.executors.cuda_lowering import Lowered, UnsupportedOperatorError, lower
from gpu_node.executors.cuda_marks import Mark, mark
from gpu_node.executors.cuda_step import BatchLayout, CudaStep
from gpu_node.executors.executor import model_of
from gpu_node.executors.feedback import Feedback
from gpu_node.executors.host_tier import HostTier
from gpu_node.executors.sizing import device_paging, host_paging, loaded_model
from gpu_node.executors.token_draws import draws_of
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.optimize import optimize as optimized
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.graph.program import Program, Rows
from gpu_node.graph.share import WHOLE
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.token_draw import TokenDraw, cell_mark
from gpu_node.kernels.triton.cache import CacheShape, LayerCache
from gpu_node.kernels.triton.prefill_attention import rows_together
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import ModelConfig
from gpu_node.models.families import build_program
from gpu_node.models.weights import load_weights
from shared.config import EngineOptions, ModelSpec
from shared.model_file import ModelFileError, checked_path

_NO_TOKENS = torch.empty(0, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A model ready to run, but for its buffers."""

    spec: ModelSpec
    model: LoadedModel
    config: ModelConfig
    """Of this device's heads."""
    program: Program
    weights: Mapping[str, torch.Tensor]
    """On the device or, once it has left, in host memory."""

    def moved(self, device: torch.device) -> _Prepared:
        """With its weights there."""
        return replace(self, weights={name: values.to(device) for name, values in self.weights.items()})


@dataclass(frozen=True, slots=True)
class _Model:
    """A loaded model."""

    prepared: _Prepared
    lowered: Lowered
    layout: BatchLayout
    blocks: CudaBlocks
    tokens: TokenCells
    feedback: Feedback = field(default_factory=Feedback)
    cells: Cells = field(default_factory=Cells)


class CudaExecutor:
    """Models on one device, their KV blocks in the pages of one arena. Several steps may be in the queue."""

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.bfloat16,
        optimize: bool = True,
        overlaps_swaps: bool = True,
        passes: Sequence[Pass] = (),
        group: Group = ALONE,
    ) -> None:
        """``dtype``: of weights, buffers and KV. ``optimize=False`` is the plain path: the builder's operators.

        ``overlaps_swaps=False`` is the plain path as well: swaps in the queue that computes. ``passes`` change each
        model's program, behind the pass `optimize`. ``group``: the devices that share each model's heads.
        """
        self.device = torch.cuda.get_device_name(device) if device.type == "cuda" else "cuda"
        self._group = group
        self._options = options
        self._device = device
        self._dtype = dtype
        self._optimize = optimize
        self._passes = ((optimized,) if optimize else ()) + tuple(passes)
        self._overlaps_swaps = overlaps_swaps
        self._copies = copy_stream(device)
        self._host = CudaArena(host_paging(options), torch.device("cpu"), is_pinned=device.type == "cuda")
        self._arena = CudaArena(device_paging(options), device)
        self._models: dict[str, _Model] = {}
        self._left: HostTier[_Prepared] = HostTier(options.host_models, lambda _: None)
        self._last_end: Mark = mark(device)

    @property
    def tiers(self) -> dict[str, str]:
        """Models on the device and in host memory."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Take a model back from host memory, or read it.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed.
        """
        assert spec.name not in self._models
        ready = (self._left.take(spec) or self._prepare(spec)).moved(self._device)
        config, model = ready.config, ready.model
        shape = CacheShape(config.num_layers, model.block_size, config.num_kv_heads, config.head_dim)
        numbers = self._arena.numbers(self._dtype)
        try:
            lowered = lower(
                ready.program,
                ready.weights,
                [LayerCache(numbers, shape, layer) for layer in range(config.num_layers)],
                max_rows=self._options.step_tokens,
                max_positions=model.max_model_len,
                joins_norms=self._optimize,
                group=self._group,
            )
        except UnsupportedOperatorError as error:
            raise ModelFileError(f"{spec.source}: {error}") from error
        together = rows_together(config.num_heads // config.num_kv_heads)
        layout = BatchLayout(model.block_size, self._arena.places(model), self._device, together)
        blocks = CudaBlocks(self._arena, self._host, model, lanes(self._copies), overlaps=self._overlaps_swaps)
        self._models[spec.name] = _Model(ready, lowered, layout, blocks, TokenCells(self._device))
        return model

    def _prepare(self, spec: ModelSpec) -> _Prepared:
        checkpoint = open_checkpoint(checked_path(spec))
        if spec.weights == "int8":
            raise ModelFileError(f"{checkpoint.path}: the cuda executor has no int8 weights; set weights: bfloat16")
        world = self._group.world
        try:
            program = tensor_parallel(build_program(checkpoint.config), self._group.rank, world)
        except IndivisibleError as error:
            raise ModelFileError(f"{checkpoint.path}: {error}") from error
        for change in self._passes:
            program = change(program)
        heads = checkpoint.config.num_heads // world, checkpoint.config.num_kv_heads // world
        config = replace(checkpoint.config, num_heads=heads[0], num_kv_heads=heads[1])
        layout = f"cuda: {self._dtype} [layer][head][keys, values][token]"
        model = loaded_model(spec, config, self._options, self._dtype.itemsize, layout)
        weights = load_weights(checkpoint, program, spec.load_format, device=self._device, dtype=self._dtype)
        return _Prepared(spec, model, config, program, weights)

    def unload_model(self, name: str) -> None:
        """Leave a model to host memory, behind the steps that were submitted."""
        self._models[name].blocks.drain()
        prepared = self._models.pop(name).prepared
        self._left.put(prepared.spec, prepared.moved(torch.device("cpu")))

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Copy blocks out of an arena, behind the steps that were submitted."""
        started_s = perf_counter()
        content = self._models[model].blocks.read(blocks, swapped_out=swapped_out)
        return content, perf_counter() - started_s

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Copy blocks into the arena, behind the steps that were submitted."""
        started_s = perf_counter()
        self._models[model].blocks.write(blocks, content)
        return perf_counter() - started_s

    def submit(self, plan: StepPlan) -> RunningStep:
        """Queue a step behind those before it; returns when all is launched."""
        model = model_of(plan.model, self._models)
        before, begin = self._last_end, mark(self._device)
        draws = draws_of(model.feedback, plan.sequences)
        sequence_ids = tuple(draw.sequence_id for part in plan.sequences for draw in part.draws)
        first_cell = model.cells.take(len(draws))
        tokens, logprobs = self._run(model, plan, draws, first_cell)
        self._last_end = mark(self._device)
        model.blocks.behind_rows()  # behind the mark: nobody who waits for tokens waits for a swap
        model.feedback.remember({one: cell_mark(first_cell + number) for number, one in enumerate(sequence_ids)})
        nums_top = tuple(draw.num_top for draw in draws)
        return RunningStep(sequence_ids, nums_top, tokens, logprobs, before, begin, self._last_end)

    def _run(
        self, model: _Model, plan: StepPlan, draws: Sequence[TokenDraw], first_cell: int
    ) -> tuple[torch.Tensor, Logprobs | None]:
        with torch.inference_mode():
            model.blocks.before_rows(plan)
            if not plan.sequences:  # it only moves blocks
                return _NO_TOKENS, None
            logits = _launch(model, plan.sequences)
            return model.tokens.draw(logits, draws, first_cell) if draws else (_NO_TOKENS, None)

    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        with torch.inference_mode():
            return _launch(model_of(model, self._models), sequences).clone()


def _launch(model: _Model, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
    """Queue a program; the logits of the rows that draw, in a buffer that the next step writes."""
    paged = [PagedSequence(part.start, len(part.token_ids), part.block_table) for part in sequences]
    ids = [token for part in sequences for token in model.feedback.token_ids(part)]
    ends = accumulate(sequence.num_rows for sequence in paged)
    draw_rows = [end - 1 for part, end in zip(sequences, ends, strict=True) if part.draws]
    step = CudaStep(model.layout, paged, model.tokens.token_ids(ids), draw_rows)
    for launch in model.lowered.launches:
        launch(step)
    return model.lowered.logits[step.rows(Rows.DRAWS, WHOLE)]
