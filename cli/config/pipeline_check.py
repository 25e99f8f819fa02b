"""Whether the pipeline that a configuration names is for its models, its devices and the size of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from shared.config.config import ClusterConfig
from shared.config.engines.engine import NO_PIPELINE, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.pipelines.pipeline_file import PipelineError
from shared.config.pipelines.pipelines import Pipelines, cpu_name, pipelines_folder, read_pipelines


def pipeline_problems(config: ClusterConfig) -> list[str]:
    """Each once. A CUDA device says its name only where an engine starts, so the engine looks there."""
    if config.engine.pipeline == NO_PIPELINE:
        return []
    try:
        found = read_pipelines(config.engine, pipelines_folder(config.data_dir))
    except PipelineError as error:
        return [f"engine.pipeline: {error}"]
    problems = (problem for node in config.nodes for problem in _problems(config, node, found))
    return [f"engine.pipeline: {problem}" for problem in dict.fromkeys(problems)]


def _problems(config: ClusterConfig, node: NodeSpec, found: Pipelines) -> Iterator[str]:
    if node.engine == "vllm":
        yield f"node {node.name!r} is vLLM, which runs no pipelines; set it to off, or have another engine"
    elif node.executor != "cuda":
        for spec in config.models:
            try:
                _look(found, spec, node)
            except PipelineError as error:
                yield str(error)


def _look(found: Pipelines, spec: ModelSpec, node: NodeSpec) -> None:
    """`PipelineError` where what the node would run of the model is for something else."""
    if node.executor == "predicted":
        chosen = found.for_predicted.of(spec, node.device)
        if chosen is not None:
            chosen.require_published()
    else:
        device = cpu_name(node.num_threads) if node.executor == "cpu" else node.executor
        found.of(spec, device, node.tensor_parallel)
