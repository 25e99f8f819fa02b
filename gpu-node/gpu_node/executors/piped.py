"""A model's program in the lanes of the pipeline that its node runs."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.engine.border.model import LoadedModel
from gpu_node.graph.passes.nano_batches import nano_batches
from gpu_node.graph.program import Program
from shared.config.engine import ModelSpec
from shared.config.pipeline_file import PipelineError
from shared.config.pipelines import Pipelines
from shared.files.model_file import ModelFileError


def piped(
    program: Program, model: LoadedModel, spec: ModelSpec, pipelines: Pipelines, device: str, num_devices: int = 1
) -> tuple[Program | None, LoadedModel]:
    """The program for steps of `LoadedModel.pipeline_rows`, None where there are none; and the model, which says so.

    `ModelFileError` where the node's pipeline is for another model, device or step.
    """
    try:
        pipeline = pipelines.of(spec, device, num_devices)
        if pipeline is None:
            return None, replace(model, lacks_pipeline=pipelines.lacks(spec, device, num_devices))
        return nano_batches(program, pipeline), replace(model, pipeline_rows=pipeline.rows)
    except PipelineError as error:
        raise ModelFileError(f"engine.pipeline: {error}") from error
