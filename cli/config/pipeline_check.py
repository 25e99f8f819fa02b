"""Whether the pipeline that a configuration names is for its models, its devices and the size of its steps."""

from __future__ import annotations

from collections.abc import Iterator

from shared.config.config import ClusterConfig
from shared.config.engines.engine import NO_PIPELINE
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
    if node.engine == "vllm" or node.executor == "predicted":
        what = "vLLM" if node.engine == "vllm" else "a predicted device"
        yield f"node {node.name!r} is {what}, which runs no pipelines; set it to off, or have another executor"
    elif node.executor != "cuda":
        device = cpu_name(node.num_threads) if node.executor == "cpu" else node.executor
        for spec in config.models:
            try:
                found.of(spec, device, node.tensor_parallel)
            except PipelineError as error:
                yield str(error)
