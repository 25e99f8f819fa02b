"""Whether the configured models can be served from the files that are there: asked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.config.machine_check import machine_memory_bytes
from gateway.models.model_parts import ModelParts
from gateway.models.models import length_of, read_parts
from gateway.models.score_form import score_form
from gpu_node.executors.model_check import load_problem
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import adapter_source_problem, is_fetched, may_change, source_problem
from shared.config.nodes.nodes import NodeTemplate
from shared.files.classifier import read_class_labels
from shared.files.model_file import ModelFileError, checked_path, model_path


@dataclass(frozen=True)
class ModelReport:
    """What was found of the models of a configuration."""

    problems: list[str]
    lengths: dict[str, int]
    """By model, the tokens of its longest request."""
    missing: list[str]
    """Models and adapters that are fetched first."""
    unpinned: dict[str, str]
    """By name, sources that may stand for other weights tomorrow."""


def check_models(config: ClusterConfig) -> ModelReport:
    """Ask gateway and nodes what they would say of each model; takes a second for a vocabulary of 50,000."""
    report = ModelReport([], {}, [], _unpinned(config))
    read: dict[Path, ModelParts | ModelFileError] = {}
    for number, spec in enumerate(config.models):
        report.missing.extend(one.name for one in spec.adapters if _is_missing(one))
        of_adapters = _adapter_problems(spec)
        report.problems.extend(f"models.{number}.adapters.{place}: {text}" for place, text in of_adapters.items())
        if source_problem(spec.source):
            continue  # the configuration's own problem, which is told where it is read
        path = model_path(spec)
        if not path.exists():
            if is_fetched(spec.source):
                report.missing.append(spec.name)
            else:
                report.problems.append(f"models.{number}.source: {path} does not exist")
            continue
        if path not in read:
            read[path] = _parts(path)
        usable = [one for place, one in enumerate(spec.adapters) if place not in of_adapters and not _is_missing(one)]
        known = replace(spec, adapters=tuple(one for one in usable if not adapter_source_problem(one.source)))
        texts = [*_node_problems(known, _kinds(config), config), *_gateway_problems(spec, read[path], config, report)]
        report.problems.extend(f"models.{number}: {text}" for text in dict.fromkeys(texts))
    return report


def _adapter_problems(spec: ModelSpec) -> dict[int, str]:
    """What is wrong with the directories of a model's adapters, by their numbers.

    Their digests are taken, other than those of models: they are small.
    """
    problems: dict[int, str] = {}
    for number, adapter in enumerate(spec.adapters):
        if adapter_source_problem(adapter.source) or _is_missing(adapter):
            continue
        try:
            checked_path(adapter)
        except ModelFileError as error:
            problems[number] = str(error)
    return problems


def _is_missing(adapter: AdapterSpec) -> bool:
    """Whether it is fetched first."""
    return is_fetched(adapter.source) and not model_path(adapter).exists()


def _unpinned(config: ClusterConfig) -> dict[str, str]:
    specs: list[ModelSpec | AdapterSpec] = [spec for spec in config.models if not source_problem(spec.source)]
    specs += [one for spec in config.models for one in spec.adapters if not adapter_source_problem(one.source)]
    return {spec.name: spec.source for spec in specs if may_change(spec.source, spec.sha256)}


def _kinds(config: ClusterConfig) -> Sequence[NodeTemplate]:
    """One node for all of a kind."""
    kinds = {(node.kind, node.device, node.tensor_parallel): node for node in [*config.nodes, *config.pools]}
    return list(kinds.values())


def _node_problems(spec: ModelSpec, nodes: Sequence[NodeTemplate], config: ClusterConfig) -> list[str]:
    """Why no node can load the model; none where some can, for then it is served."""
    problems = [load_problem(spec, node, config.engine, machine_memory_bytes()) for node in nodes]
    return problems if all(problems) else []


def _parts(path: Path) -> ModelParts | ModelFileError:
    try:
        return read_parts(path)
    except ModelFileError as error:
        return error


def _gateway_problems(
    spec: ModelSpec, parts: ModelParts | ModelFileError, config: ClusterConfig, report: ModelReport
) -> list[str]:
    if isinstance(parts, ModelFileError):
        return [str(parts)]
    try:
        report.lengths[spec.name] = length_of(spec, parts, model_path(spec), config)
        if spec.task == "score":
            score_form(spec, parts, model_path(spec))
        if spec.task == "classify":
            read_class_labels(model_path(spec))
    except ModelFileError as error:
        return [str(error)]
    return []
