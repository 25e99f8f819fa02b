"""Whether the pipeline that a configuration names is for its models, its devices and the size of its steps."""

from __future__ import annotations

from shared.config.config import ClusterConfig
from shared.config.engine import NO_PIPELINE
from shared.config.nodes import NodeSpec
from shared.config.pipeline_file import PipelineError
from shared.config.pipelines import pipelines_folder, read_pipelines


def pipeline_problems(config: ClusterConfig) -> list[str]:
    """Each once. A CUDA device says its name only where an engine starts, so the engine looks there."""
    if config.engine.pipeline == NO_PIPELINE:
        return []
    try:
        found = read_pipelines(config.engine, pipelines_folder(config.data_dir))
    except PipelineError as error:
        return [f"engine.pipeline: {error}"]
    problems = []
    for node in config.nodes:
        for spec in config.models if _is_known(node) else ():
            try:
                found.of(spec, node.device if node.executor == "predicted" else "cpu", node.tensor_parallel)
            except PipelineError as error:
                problems.append(f"engine.pipeline: {error}")
    return list(dict.fromkeys(problems))


def _is_known(node: NodeSpec) -> bool:
    return node.engine != "vllm" and node.executor != "cuda"
