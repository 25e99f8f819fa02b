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
from gpu_node.executors.cuda_arena import CudaArena
from gpu_node.executors.cuda_draws import Logprobs, RunningStep, TokenCells
from gpu_node.executors.cuda_graphs import CudaGraphs, Graphs
from gpu_node.executors.cuda_inputs import InputLimits, StepInputs
from gpu_node.executors.cuda_lowering import UnsupportedOperatorError, lower
from gpu_node.executors.cuda_marks import Mark, mark
from gpu_node.executors.cuda_program import CudaProgram
from gpu_node.executors.cuda_recording import RecordedGraphs
from gpu_node.executors.executor import model_of
from gpu_node.executors.feedback import Feedback
from gpu_node.executors.host_tier import HostTier
from gpu_node.executors.sizing import device_paging, host_paging, loaded_model
from gpu_node.executors.token_draws import draws_of
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.optimize import optimize as optimized
from gpu_node.graph.program import Kind, Program
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.token_draw import TokenDraw, cell_mark
from gpu_node.kernels.triton.cache import CacheShape, LayerCache
from gpu_node.kernels.triton.launch import num_processors
from gpu_node.kernels.triton.poll import PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.prefill_attention import rows_together
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import ModelConfig
from gpu_node.models.families import build_program
from gpu_node.models.rotary import ROPE_FACTORS
from gpu_node.models.weights import load_weights
from shared.config import EngineOptions, ModelSpec
from shared.model_file import ModelFileError, checked_path

NUM_TASK_SLOTS = 4
"""Tasks of others that may wait for a model's polls."""

_NO_TOKENS = torch.empty(0, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A model ready to run, but for its buffers."""

    spec: ModelSpec
    model: LoadedModel
    config: ModelConfig
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
    program: CudaProgram
    tokens: TokenCells
    tasks: Tasks | None
    """What its polls look for, where its program has any."""
    feedback: Feedback = field(default_factory=Feedback)
    cells: Cells = field(default_factory=Cells)


class CudaExecutor:
    """Models on one device, their KV blocks in the pages of one arena. Several steps may be in the queue."""

    device = "cuda"

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.bfloat16,
        optimize: bool = True,
        graphs: bool = True,
        passes: Sequence[Pass] = (),
    ) -> None:
        """``dtype``: of weights, buffers and KV. ``passes`` change each model's program, behind the pass `optimize`.

        Plain paths: ``optimize=False``, the builder's operators; ``graphs=False``, a launch for each in every step.
        """
        self._options = options
        self._device = device
        self._dtype = dtype
        self._optimize = optimize
        self._passes = ((optimized,) if optimize else ()) + tuple(passes)
        self._arena = CudaArena(device_paging(options), host_paging(options), device)
        self._models: dict[str, _Model] = {}
        self._left: HostTier[_Prepared] = HostTier(options.host_models, lambda _: None)
        self._last_end: Mark = mark(device)
        self._has_graphs = graphs

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
        try:
            loaded = self._lower(ready)
        except UnsupportedOperatorError as error:
            raise ModelFileError(f"{spec.source}: {error}") from error
        with torch.inference_mode():
            if self._has_graphs:
                loaded.program.capture(_graphs(self._device))
        self._models[spec.name] = loaded
        if self._device.type == "cuda":  # an interpreter has nothing to compile
            self.warm_up(spec.name)
        return ready.model

    def _lower(self, ready: _Prepared) -> _Model:
        config, model = ready.config, ready.model
        shape = CacheShape(config.num_layers, model.block_size, config.num_kv_heads, config.head_dim)
        numbers = self._arena.numbers(self._dtype)
        limits = InputLimits(
            num_rows=self._options.step_tokens,
            num_sequences=self._options.max_num_seqs,
            num_blocks=-(-model.max_model_len // model.block_size),
            context_tokens=model.max_model_len,
            rows_together=rows_together(config.num_heads // config.num_kv_heads),
        )
        tasks = None
        if any(operator.kind is Kind.POLL for operator in ready.program.operators):
            columns = config.num_heads * config.head_dim
            ring = TaskRing.new(NUM_TASK_SLOTS, limits.num_sequences, limits.num_blocks, columns, numbers)
            tasks = Tasks(PollCounters.new(num_processors(self._device), NUM_TASK_SLOTS, self._device), ring)
        lowered = lower(
            ready.program,
            ready.weights,
            [LayerCache(numbers, shape, layer) for layer in range(config.num_layers)],
            max_rows=limits.num_rows,
            max_draws=limits.num_sequences,
            max_positions=model.max_model_len,
            tasks=tasks,
            joins_norms=self._optimize,
        )
        tokens = TokenCells(self._device)
        inputs = StepInputs(limits, tokens.cells, self._device)
        program = CudaProgram(lowered, inputs, self._arena.places(model), model.block_size)
        return _Model(ready, program, tokens, tasks)

    def warm_up(self, name: str) -> None:
        """Run what the first requests would have to compile; no token and no block of anybody is touched."""
        model = self._models[name]
        with torch.inference_mode():
            model.program.warm_up()
            model.tokens.warm_up(model.program.lowered.logits)
        self._last_end = mark(self._device)
        self._last_end.wait()

    def tasks(self, name: str) -> Tasks | None:
        """What the polls of a model's program look for: others write what they ask for, and wait for the counter."""
        return self._models[name].tasks

    def _prepare(self, spec: ModelSpec) -> _Prepared:
        checkpoint = open_checkpoint(checked_path(spec))
        if spec.weights == "int8":
            raise ModelFileError(f"{checkpoint.path}: the cuda executor has no int8 weights; set weights: bfloat16")
        config = checkpoint.config
        layout = f"cuda: {self._dtype} [layer][head][keys, values][token]"
        model = loaded_model(spec, config, self._options, self._dtype.itemsize, layout)
        program = build_program(config)
        for change in self._passes:
            program = change(program)
        weights = {
            name: values if name == ROPE_FACTORS else values.to(self._dtype)
            for name, values in load_weights(checkpoint, program).items()
        }
        return _Prepared(spec, model, config, program, weights)

    def unload_model(self, name: str) -> None:
        """Leave a model to host memory, behind the steps that were submitted."""
        mark(self._device).wait()  # replays may be under way
        prepared = self._models.pop(name).prepared
        self._left.put(prepared.spec, prepared.moved(torch.device("cpu")))

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Copy blocks out of an arena, behind the steps that were submitted."""
        started_s = perf_counter()
        content = self._arena.read(self._models[model].prepared.model, blocks, swapped_out=swapped_out)
        return content, perf_counter() - started_s

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Copy blocks into the arena, behind the steps that were submitted."""
        started_s = perf_counter()
        self._arena.write(self._models[model].prepared.model, blocks, content)
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
        model.feedback.remember({one: cell_mark(first_cell + number) for number, one in enumerate(sequence_ids)})
        nums_top = tuple(draw.num_top for draw in draws)
        return RunningStep(sequence_ids, nums_top, tokens, logprobs, before, begin, self._last_end)

    def _run(
        self, model: _Model, plan: StepPlan, draws: Sequence[TokenDraw], first_cell: int
    ) -> tuple[torch.Tensor, Logprobs | None]:
        with torch.inference_mode():
            self._arena.move(model.prepared.model, plan)
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
    return model.program.run(paged, ids, draw_rows)


def _graphs(device: torch.device) -> Graphs:
    if device.type == "cuda":
        return CudaGraphs(device)
    return RecordedGraphs()
