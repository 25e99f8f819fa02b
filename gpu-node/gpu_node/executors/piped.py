"""A model's program in the lanes of the pipeline that its node runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpu_node.engine.border.model import LoadedModel
from gpu_node.graph.passes.pipeline.copy_out import copy_out
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import ELSEWHERE, OF_WHOLE_TEXTS, OperatorKind, Program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipeline_file import PipelineError
from shared.config.pipelines.pipelines import Pipelines
from shared.files.model_file import ModelFileError


@dataclass(frozen=True, slots=True)
class PipedProgram:
    """A program for large steps, where there is a pipeline."""

    program: Program | None = None
    num_rows: int = 0
    """Of the steps that go through it, or more."""
    is_lacking: bool = False
    """Whether a pipeline was to be chosen, and nothing is known of any."""

    def joined(self, program: Program) -> Program:
        """The program, knowing also the buffers and weights that only its pipeline has."""
        if self.program is None:
            return program
        return replace(
            program,
            buffers=tuple(dict.fromkeys((*program.buffers, *self.program.buffers))),
            weights=tuple(dict.fromkeys((*program.weights, *self.program.weights))),
        )

    def told(self, model: LoadedModel) -> LoadedModel:
        """The model, saying which steps go through a pipeline."""
        return replace(model, pipeline_rows=self.num_rows, lacks_pipeline=self.is_lacking)


NOT_PIPED = PipedProgram()
_OF_LINKS = ELSEWHERE | {OperatorKind.POLL}
NOT_FOR_ENCODERS = "pipelines are for models that generate, and this one is an encoder; set pipeline: off"


def copies_in_lanes(options: EngineOptions) -> bool:
    """Whether full blocks are copied to the host, and beside the rows of a step (`EngineOptions.overlap_swaps`).

    Not where memory is lent: a step's blocks move before others' rows may come where they lay.
    """
    return options.overlap_swaps and options.tiers.host_bytes > 0 and options.offload == "off"


def piped(
    program: Program,
    spec: ModelSpec,
    pipelines: Pipelines,
    device: str,
    num_devices: int = 1,
    *,
    kernels: str = "",
    links_in_lanes: bool = True,
    copies_out: bool = False,
) -> PipedProgram:
    """``program`` in the pipeline that is for it. `ModelFileError` where the node's is for something else.

    ``kernels``: what their times depend on (`PipelineProfile.kernels`). ``links_in_lanes``: whether the device can look
    for others' tasks, and ask others, in lanes. ``copies_out``: whether copies of full blocks to the host are operators
    of the pipeline, too.
    """
    is_encoder = not OF_WHOLE_TEXTS.isdisjoint(one.kind for one in program.operators)
    try:
        pipeline = pipelines.of(spec, device, num_devices, kernels)
        if pipeline is None:
            is_lacking = not is_encoder and pipelines.lacks(spec, device, num_devices, kernels)
            return PipedProgram(is_lacking=is_lacking)
        if any(one.kind is OperatorKind.LORA for one in program.operators):
            raise PipelineError("pipelines have no adapters; set pipeline: off")
        if is_encoder:
            raise PipelineError(NOT_FOR_ENCODERS)
        if not links_in_lanes and any(one.kind in _OF_LINKS for one in program.operators):
            raise PipelineError("this device has no links in lanes; set pipeline or offload to off")
        return PipedProgram(nano_batches(copy_out(program) if copies_out else program, pipeline), pipeline.rows)
    except PipelineError as error:
        raise ModelFileError(f"engine.pipeline: {error}") from error
