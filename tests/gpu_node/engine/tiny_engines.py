"""Engines of a tiny model, however a test wants them: on the reference or on the CPU device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from tests.gpu_node import tiny

BLOCK = 4
MIB = 1 << 20

Make = Callable[..., Engine]
"""A model, if it is not the tiny one, and options."""


@contextmanager
def tiny_engines(kind: str, path: Path) -> Iterator[Make]:
    """Makes engines of ``kind``, each with the model at ``path``; their devices are closed behind the block."""
    made: list[CpuExecutor] = []

    def make(spec: ModelSpec | None = None, **given: Any) -> Engine:
        options = EngineOptions(**{"kv_cache_bytes": MIB, "block_size": BLOCK, "evicted_kv_bytes": MIB} | given)
        executor: Any = ReferenceExecutor(options)
        if kind == "cpu":
            executor = CpuExecutor(options, num_threads=1)
            made.append(executor)
        engine = Engine(executor, options)
        engine.load_model(spec or ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
        return engine

    yield make
    for executor in made:
        executor.close()
