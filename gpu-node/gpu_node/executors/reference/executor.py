"""The reference executor: programs in plain torch, float32, on the CPU, over a paged KV cache."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from gpu_node.engine.border.executor import ComputedStep, model_of
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockSwap, ScheduledSequence, StepPlan, StepResult, draw_rows
from gpu_node.engine.border.sizing import loaded_model
from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.draws.sampler import Drawn, sample
from gpu_node.executors.memory.host_bytes import as_tensor, bytes_of, row_bytes
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.memory.kv_identity import adapter_weights, image_layout, kv_identity
from gpu_node.executors.piped import copies_in_lanes, piped
from gpu_node.executors.reference.interpreter import InterpreterInputs, ReferenceDevice, nobody_waits, run_program
from gpu_node.graph.lanes import first_ready
from gpu_node.graph.passes.adapt import adapt
from gpu_node.graph.passes.draft import Pass, changed
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.graph.program import Program
from gpu_node.kernels import operations
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.models.adapters.adapters import open_adapters
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import ModelConfig
from gpu_node.models.pooling.encoder_check import check_encoder
from gpu_node.models.served_program import served_program
from gpu_node.models.tensors.quantization import int8_weights
from gpu_node.models.weights.weights import load_weights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines
from shared.files.model_file import ModelFileError, checked_path

_FLOAT_BYTES = 4
_PIPELINE_DEVICE = "reference"
_KV_LAYOUT = "reference: float32 [layer][keys, values][token][head]"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A model ready to run, but for its blocks."""

    spec: ModelSpec
    model: LoadedModel
    config: ModelConfig
    """Of this device's heads."""
    program: Program
    in_lanes: Program | None
    """The same, for steps in a pipeline."""
    weights: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Model:
    """A loaded model. It has tensors of its own for all blocks that it could come to have, on device and host."""

    prepared: _Prepared
    memory: ReferenceDevice
    feedback: Feedback


class ReferenceExecutor:
    """Models in main memory. Pages are lent in the books only: what is never written takes no memory."""

    device = "cpu"

    def __init__(
        self,
        options: EngineOptions,
        *,
        group: DeviceGroup = ALONE,
        passes: Sequence[Pass] = (),
        poll: Callable[[], None] = nobody_waits,
        pipelines: Pipelines = NO_PIPELINES,
        choose: Callable[[int], int] = first_ready,
    ) -> None:
        """``group``: the devices that share each model's heads. ``passes`` change each model's program after that.

        ``poll`` is called by each poll that they insert. Steps in ``pipelines`` take operators in an order that lanes
        permit; ``choose``, of so many that could be next, the index of one.
        """
        self._options = options
        self._group = group
        self._passes = passes
        self._poll = poll
        self._pipelines = pipelines
        self._choose = choose
        self._models: dict[str, _Model] = {}
        self._left: HostTier[_Prepared] = HostTier(options.host_models, lambda _: None)

    @property
    def tiers(self) -> dict[str, str]:
        """Models that are loaded, and those whose tensors are kept."""
        return self._left.tiers(self._models)

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Read a GGUF file or a safetensors directory where its weights are not kept, make an empty KV cache.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed.
        """
        assert spec.name not in self._models or spec.name == instead_of
        ready = self._left.take(spec) or self._prepare(spec)
        model, config = ready.model, ready.config
        if instead_of == spec.name:
            before = self._models.pop(instead_of).memory
            blocks, host = before.kv_caches, before.host
        else:
            numbers = model.num_blocks, model.num_host_blocks
            blocks, host = (_empty_caches(number, model, config) for number in numbers)
            if instead_of is not None:
                self.unload_model(instead_of)
        memory = ReferenceDevice(ready.weights, blocks, self._group, self._poll, host=host)
        self._models[spec.name] = _Model(ready, memory, Feedback())
        return model

    def _prepare(self, spec: ModelSpec) -> _Prepared:
        checkpoint = open_checkpoint(checked_path(spec))
        config = checkpoint.config
        check_encoder(spec, checkpoint, self._options, self._group.world)
        plain = served_program(spec, checkpoint)
        try:
            program = tensor_parallel(plain, self._group.rank, self._group.world)
        except IndivisibleError as error:
            raise ModelFileError(f"{checkpoint.path}: {error}") from error
        adapters = open_adapters(spec, checkpoint, plain)
        program = adapt(program, adapters.ranks, len(adapters.names))
        program = changed(program, self._passes)
        own = replace(config, num_kv_heads=config.num_kv_heads // self._group.world)
        salt, layout = kv_identity(spec, self._options, _KV_LAYOUT), image_layout(spec, _KV_LAYOUT)
        model = loaded_model(
            spec,
            own,
            self._options,
            _FLOAT_BYTES,
            layout,
            kv_identity=salt,
            adapter_layouts=adapter_weights(spec),
            checks_guesses=True,
        )
        in_lanes = piped(
            program,
            spec,
            self._pipelines,
            _PIPELINE_DEVICE,
            self._group.world,
            copies_out=copies_in_lanes(self._options),
        )
        weights = load_weights(checkpoint, in_lanes.joined(program), spec.load_format, adapters=adapters)
        if spec.weights == "int8":
            weights = int8_weights(weights)
        return _Prepared(spec, in_lanes.told(model), own, program, in_lanes.program, weights)

    def unload_model(self, name: str) -> None:
        """Free a model's blocks, and leave its weights to host memory."""
        prepared = self._models.pop(name).prepared
        self._left.put(prepared.spec, prepared)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Copy blocks out of the tensors of all layers, each padded to its full size."""
        started_s = perf_counter()
        loaded = self._models[model]
        caches = loaded.memory.host if swapped_out else loaded.memory.kv_caches
        numbers = torch.stack([cache[list(blocks)] for cache in caches], dim=1).flatten(1)
        block_bytes = loaded.prepared.model.block_bytes
        content = bytearray(len(blocks) * block_bytes)
        padded = as_tensor(content, torch.uint8).view(len(blocks), block_bytes)
        padded[:, : numbers.shape[1] * _FLOAT_BYTES] = numbers.view(torch.uint8)
        return memoryview(content), perf_counter() - started_s

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Copy them into these tensors."""
        started_s = perf_counter()
        loaded = self._models[model]
        caches = loaded.memory.kv_caches
        shape = (len(blocks), len(caches), *caches[0].shape[1:])
        num_bytes = math.prod(shape[1:]) * _FLOAT_BYTES
        padded = as_tensor(bytearray(content), torch.uint8).view(len(blocks), loaded.prepared.model.block_bytes)
        numbers = padded[:, :num_bytes].contiguous().view(torch.float32).view(shape)
        for layer, cache in enumerate(caches):
            cache[list(blocks)] = numbers[:, layer]
        return perf_counter() - started_s

    def host_block(self, model: str, block: int) -> list[memoryview]:
        """A piece of each layer's tensor."""
        return [bytes_of(cache[block]) for cache in self._models[model].memory.host]

    def submit(self, plan: StepPlan) -> ComputedStep:
        """Compute one step; logits are made only for the rows that draw a token."""
        started_s = perf_counter()
        model = model_of(plan.model, self._models)
        with torch.inference_mode():
            in_lanes = _lanes_of(model, plan.num_tokens)
            copies_out = plan.copies_out if in_lanes is not None and in_lanes.copies_out else ()
            _move_blocks(model.memory, plan, plan.swaps_out if copies_out else plan.moves_out)
            drawn: dict[int, Drawn | None] = {}
            embeddings: dict[int, bytes] = {}
            if plan.sequences:  # else it only moves blocks
                rows = self._logits(model, plan.sequences, copies_out)
                drawn = _draw(model.feedback, plan.sequences, rows)
                if model.prepared.model.gives_rows:
                    embeddings = row_bytes(drawn, rows)
        tokens = {sequence_id: each.token_id for sequence_id, each in drawn.items() if each is not None}
        model.feedback.remember({sequence_id: tokens.get(sequence_id, 0) for sequence_id in drawn})
        result = StepResult(
            token_ids=tokens,
            duration_s=perf_counter() - started_s,
            errors={sequence_id: NOT_FINITE for sequence_id, each in drawn.items() if each is None},
            logprobs={sequence_id: each.logprob for sequence_id, each in drawn.items() if each and each.logprob},
            embeddings=embeddings,
        )
        return ComputedStep(result)

    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [rows that draw, vocabulary], in their order."""
        return self._logits(model_of(model, self._models), sequences)

    def _logits(
        self, loaded: _Model, sequences: Sequence[ScheduledSequence], copies_out: Sequence[BlockSwap] = ()
    ) -> torch.Tensor:
        paged = [PagedSequence(part.start, len(part.token_ids), part.block_table) for part in sequences]
        token_ids = [token for part in sequences for token in loaded.feedback.token_ids(part)]
        inputs = InterpreterInputs(
            token_ids=torch.tensor(token_ids, dtype=torch.int64),
            batch=paged_batch(paged, self._options.block_size),
            draw_rows=torch.tensor(draw_rows(sequences), dtype=torch.int64),
            copies_out=copies_out,
            adapters=torch.tensor([part.adapter for part in sequences for _ in part.token_ids], dtype=torch.int64),
        )
        in_lanes = _lanes_of(loaded, len(token_ids))
        if in_lanes is not None:
            return run_program(in_lanes, loaded.memory, inputs, self._choose)
        return run_program(loaded.prepared.program, loaded.memory, inputs)


def _draw(feedback: Feedback, sequences: Sequence[ScheduledSequence], logits: torch.Tensor) -> dict[int, Drawn | None]:
    """By sequence id, what each draw of ``sequences`` gives from its row of ``logits``."""
    drawn = {}
    row = 0
    for part in sequences:
        for draw in part.draws:
            output = feedback.output(part, draw) if draw.sampling.has_penalties else ()
            drawn[draw.sequence_id] = sample(logits[row + draw.num_draft_tokens], draw, output)
        row += part.num_draw_rows
    return drawn


def _lanes_of(model: _Model, num_rows: int) -> Program | None:
    """The program in lanes, if a step of so many rows takes it."""
    return model.prepared.in_lanes if model.prepared.model.is_piped(num_rows) else None


def _move_blocks(memory: ReferenceDevice, plan: StepPlan, moves_out: Sequence[BlockSwap]) -> None:
    """These moves out, then copies as if at the same time, then swaps in."""
    sources = torch.tensor([copy.source for copy in plan.copies], dtype=torch.int64)
    destinations = torch.tensor([copy.destination for copy in plan.copies], dtype=torch.int64)
    for device, host in zip(memory.kv_caches, memory.host, strict=True):
        for swap in moves_out:
            host[swap.host_block] = device[swap.device_block]
        if plan.copies:
            operations.copy_blocks(device, sources, destinations)
        for swap in plan.swaps_in:
            device[swap.device_block] = host[swap.host_block]


def _empty_caches(num_blocks: int, model: LoadedModel, config: ModelConfig) -> list[torch.Tensor]:
    shape = (num_blocks, 2, model.block_size, config.num_kv_heads, config.head_dim)
    return [_untouched_zeros(shape) for _ in range(config.num_layers)]


def _untouched_zeros(shape: tuple[int, ...]) -> torch.Tensor:
    """Pages that the system gives when they are first written; torch's own zeros would touch them all now."""
    if not math.prod(shape):
        return torch.zeros(shape)
    return torch.frombuffer(mmap.mmap(-1, math.prod(shape) * _FLOAT_BYTES), dtype=torch.float32).view(shape)
