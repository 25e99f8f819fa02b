"""Engines that weave, as both processes of a check make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.engine import Engine
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.graph.passes.named import offload_passes
from shared.config.engines.engine import EngineOptions, ModelSpec

LINK = LinkName("hot", "cold")


@dataclass(frozen=True, slots=True)
class EngineOf:
    """A model, and what an engine has for it."""

    spec: ModelSpec
    options: EngineOptions
    folder: Path
    """Of links."""
    device: str
    dtype: str

    def make(self) -> Engine:
        """With the model loaded."""
        executor = CudaExecutor(
            self.options,
            torch.device(self.device),
            dtype=getattr(torch, self.dtype),
            passes=offload_passes(self.options.offload),
            link_folder=self.folder,
        )
        engine = Engine(executor, self.options)
        engine.load_model(self.spec)
        return engine

    def row(self) -> dict[str, object]:
        """For a process's arguments: of the options, what is not as it is by default."""
        default = EngineOptions()
        changed = {
            one.name: getattr(self.options, one.name)
            for one in fields(EngineOptions)
            if getattr(self.options, one.name) != getattr(default, one.name)
        }
        whole = {one.name: getattr(self, one.name) for one in fields(self)}
        return whole | {"spec": asdict(self.spec), "options": changed, "folder": str(self.folder)}

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> EngineOf:
        """What `row` gave."""
        spec, options = ModelSpec(**row["spec"]), EngineOptions(**row["options"])
        return cls(spec, options, Path(row["folder"]), row["device"], row["dtype"])
