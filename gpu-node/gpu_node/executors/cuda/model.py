"""A model on a CUDA device: how it is made ready, and how its steps are queued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.cuda.draws import Logprobs, TokenCells, to_host
from gpu_node.executors.cuda.links.remote_moves import RemoteMoves
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.blocks import CudaBlocks
from gpu_node.executors.cuda.memory.lanes import lanes
from gpu_node.executors.cuda.models import PreparedOnHost
from gpu_node.executors.cuda.program.graphs.graphs import CudaGraphs, Graphs
from gpu_node.executors.cuda.program.graphs.recording import RecordedGraphs
from gpu_node.executors.cuda.program.inputs import InputLimits, StepInputs
from gpu_node.executors.cuda.program.lane_streams import lane_streams
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving
from gpu_node.executors.cuda.program.lowering import lower
from gpu_node.executors.cuda.program.program import CudaProgram
from gpu_node.executors.draws.cells import Cells
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.executors.draws.token_draws import draws_of
from gpu_node.executors.memory.kv_identity import adapter_weights, image_weights
from gpu_node.executors.memory.largest_step import largest_step
from gpu_node.executors.piped import piped
from gpu_node.executors.unguessed import refuse_speculation
from gpu_node.graph.passes.adapt import adapt
from gpu_node.graph.passes.draft import Pass, changed
from gpu_node.graph.passes.optimize import optimize as optimized
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.token_draw import TokenDraw
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.cache import CacheShape, LayerCache
from gpu_node.models.adapters.adapters import open_adapters
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.encoder_check import check_encoder
from gpu_node.models.served_program import served_program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines
from shared.files.encoder import step_rows
from shared.files.model_file import ModelFileError, checked_path

_NO_TOKENS = torch.empty(0, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class CudaModel:
    """A model that is ready to compute."""

    prepared: PreparedOnHost
    """With its weights on the device."""
    model: LoadedModel
    program: CudaProgram
    blocks: CudaBlocks
    tokens: TokenCells
    moves: RemoteMoves
    shape: CacheShape
    """Of its blocks."""
    num_columns: int
    """Of a row of q."""
    feedback: Feedback = field(default_factory=Feedback)
    cells: Cells = field(default_factory=Cells)

    def run(self, plan: StepPlan) -> torch.Tensor | None:
        """Queue a step up to its draws: their logits, as `launch`; None where it only moves blocks."""
        with torch.inference_mode():
            self.blocks.before_rows(plan)
            if plan.sends or plan.calls_back:
                self._move_remote(plan)
            return self.launch(plan.sequences) if plan.sequences else None

    def _move_remote(self, plan: StepPlan) -> None:
        ring = self.program.lowered.asking.ring
        assert ring is not None, "a plan moves blocks where a receiver has accepted"
        self.blocks.behind_rows()  # what is swapped in may be sent
        self.moves.send(ring, plan.sends)
        self.moves.call_back(ring, plan.calls_back)

    def draw(
        self, logits: torch.Tensor | None, draws: Sequence[TokenDraw], first_cell: int
    ) -> tuple[torch.Tensor, Logprobs | None]:
        """Queue a step's draws, up to its end (`CudaBlocks.behind_rows`): its tokens, on their way to the host."""
        if logits is None or not draws:
            return _NO_TOKENS, None
        with torch.inference_mode():
            return self.tokens.draw(logits, draws, first_cell)

    def embeddings(self, rows: torch.Tensor | None) -> torch.Tensor | None:
        """What a step's draws are embeddings of, on its way to the host, where the model embeds: ``rows`` as `run`
        gives them, float32 [draws, hidden size]."""
        return to_host(rows) if rows is not None and self.model.gives_rows else None

    def launch(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """Queue a program; the logits of the rows that draw, in a buffer that the next step writes."""
        paged = [PagedSequence(part.start, len(part.token_ids), part.block_table) for part in sequences]
        ids = [token for part in sequences for token in self.feedback.token_ids(part)]
        ends = accumulate(sequence.num_rows for sequence in paged)
        draw_rows = [end - 1 for part, end in zip(sequences, ends, strict=True) if part.draws]
        adapters = [part.adapter for part in sequences for _ in part.token_ids] if self.model.adapters else ()
        return self.program.run(paged, ids, draw_rows, sum(part.is_remote for part in sequences), adapters)

    def warm_up(self) -> None:
        """Run what the first requests would have to compile; no token and no block of a request is changed."""
        self.program.warm_up()
        self.tokens.warm_up(self.program.lowered.logits)
        self.blocks.warm_up()
        self.blocks.drain()


@dataclass(frozen=True, slots=True)
class CudaBuilder:
    """Makes models ready (`Builder`)."""

    options: EngineOptions
    device: torch.device
    dtype: torch.dtype
    host: CudaArena
    copies: torch.cuda.Stream | None
    passes: Sequence[Pass] = ()
    optimizes: bool = True
    joins_norms: bool = True
    graphs: bool = True
    overlaps_swaps: bool = True
    group: DeviceGroup = ALONE
    pipelines: Pipelines = NO_PIPELINES
    name: str = "cuda"
    """Of the device, as pipelines say it."""
    serving: Serving = field(default_factory=Serving)
    """What polls of all models look for."""

    def open(self, spec: ModelSpec) -> PreparedOnHost:
        """Read what a model is, and make its program. Raises `ModelFileError`."""
        checkpoint = open_checkpoint(checked_path(spec))
        refuse_speculation(spec, checkpoint.path)
        if spec.weights == "int8":
            raise ModelFileError(f"{checkpoint.path}: the cuda executor has no int8 weights; set weights: bfloat16")
        world = self.group.world
        check_encoder(spec, checkpoint, self.options, world)
        plain = served_program(spec, checkpoint)
        try:
            program = tensor_parallel(plain, self.group.rank, world)
        except IndivisibleError as error:
            raise ModelFileError(f"{checkpoint.path}: {error}") from error
        adapters = open_adapters(spec, checkpoint, plain)
        program = adapt(optimized(program) if self.optimizes else program, adapters.ranks, len(adapters.names))
        program = changed(program, self.passes)
        heads = checkpoint.config.num_heads // world, checkpoint.config.num_kv_heads // world
        config = replace(checkpoint.config, num_heads=heads[0], num_kv_heads=heads[1])
        in_lanes = piped(program, spec, self.pipelines, self.name, world, links_in_lanes=False)
        return PreparedOnHost(
            spec,
            config,
            in_lanes.joined(program),
            checkpoint,
            in_lanes,
            adapters,
            image_weights=image_weights(spec),
            adapter_weights=adapter_weights(spec),
        )

    def build(self, prepared: PreparedOnHost, model: LoadedModel, arena: CudaArena) -> CudaModel:
        """All that its steps need beside weights and KV."""
        made = self._lowered(prepared, model, arena)
        with torch.inference_mode():
            if self.graphs and self.group.world == 1:  # all-reduces in a graph have not been tried yet
                made.program.capture(_graphs(self.device))
            if self.device.type == "cuda":  # an interpreter has nothing to compile
                made.warm_up()
        return made

    def _lowered(self, prepared: PreparedOnHost, model: LoadedModel, arena: CudaArena) -> CudaModel:
        config = prepared.config
        shape = CacheShape(config.num_layers, model.block_size, config.num_kv_heads, config.head_dim)
        numbers = arena.numbers(self.dtype)
        limits = InputLimits(
            num_rows=step_rows(self.options, is_encoder=config.is_encoder),
            num_sequences=self.options.max_num_seqs,
            num_blocks=-(-model.max_model_len // model.block_size),
            context_tokens=model.max_model_len,
            rows_together=rows_together(config.num_heads // config.num_kv_heads),
            num_kv_heads=config.num_kv_heads,
            has_adapters=bool(model.adapters),
        )
        lowered = lower(
            prepared.program,
            prepared.weights,
            [LayerCache(numbers, shape, layer) for layer in range(config.num_layers)],
            max_rows=limits.num_rows,
            max_draws=limits.num_sequences,
            max_positions=model.max_model_len,
            piped=prepared.piped.program,
            serving=self.serving,
            asking=AskedDevice(),
            joins_norms=self.joins_norms,
            group=self.group,
        )
        tokens = TokenCells(self.device)
        inputs = StepInputs(limits, tokens.cells, self.device)
        program = CudaProgram(
            lowered,
            inputs,
            arena.places(model),
            model.block_size,
            streams=lane_streams(self.device),
            piped_rows=prepared.piped.num_rows,
        )
        blocks = CudaBlocks(arena, self.host, model, lanes(self.copies), overlaps=self.overlaps_swaps)
        moves = RemoteMoves(arena, arena.places(model), self.dtype, self.serving)
        columns = config.num_heads * config.head_dim
        return CudaModel(prepared, prepared.piped.told(model), program, blocks, tokens, moves, shape, columns)

    def run_largest_step(self, model: CudaModel) -> None:
        """Wait for the step that takes most memory; no request uses the model yet."""
        plan = largest_step(model.model, self.options)
        model.draw(model.run(plan), draws_of(model.feedback, plan.sequences), 0)
        model.blocks.behind_rows()
        model.blocks.drain()


def _graphs(device: torch.device) -> Graphs:
    """For one model: its graphs have a pool of memory of their own, which goes with them."""
    return CudaGraphs(device) if device.type == "cuda" else RecordedGraphs()
