"""Engine processes of SmolLM2's size on this machine's cores, as a bench starts them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpu_node.bench.offload.engine_end import EngineEnd, engine_end
from gpu_node.engine.process.protocol.protocol import EngineReady, LoadModel, ModelLoaded
from shared.config.engines.engine import ModelSpec
from shared.errors import OperatorError

IMAGES_BYTES = 4 << 30
"""Of host memory for images that wait at an engine, at most."""


class TooFewCpusError(OperatorError):
    """There is no CPU for one of the engines."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine that a bench starts."""

    name: str
    cpus: Sequence[int]
    models: Sequence[str]
    """Under these names; all of them are the same model."""
    kv_bytes: int
    options: Mapping[str, Any]


def two_cpus() -> tuple[int, int]:
    """One for each engine. `TooFewCpusError`."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise TooFewCpusError(f"two engines need a CPU each; this process may use {len(cpus)}")
    return cpus[0], cpus[1]


def start(stack: ExitStack, folder: Path, model: ModelSpec, specs: Sequence[EngineSpec]) -> dict[str, EngineEnd]:
    """All of them, with their models loaded; they end with ``stack``."""
    ends = {
        spec.name: stack.enter_context(engine_end(spec.name, _config(folder, model, spec), spec.cpus)) for spec in specs
    }
    for end in ends.values():
        end.ask(EngineReady)
    most = max(len(spec.models) for spec in specs)
    for number in range(most):
        loading = [(ends[spec.name], spec.models[number]) for spec in specs if number < len(spec.models)]
        for end, name in loading:
            end.send(LoadModel(name))
        for end, _ in loading:
            end.ask(ModelLoaded)
    return ends


def _config(folder: Path, model: ModelSpec, spec: EngineSpec) -> Path:
    entry = {"source": model.source, "sha256": model.sha256, "weights": model.weights}
    config = {
        "models": [{"name": name, **entry} for name in spec.models],
        "nodes": [
            {"name": spec.name, "executor": "cpu", "num_threads": len(spec.cpus), "cpus": list(spec.cpus)},
        ],
        "engine": {
            "kv_cache_bytes": spec.kv_bytes,
            "max_num_seqs": 32,
            "evicted_kv_bytes": IMAGES_BYTES,
            **spec.options,
        },
    }
    path = folder / f"{spec.name}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
