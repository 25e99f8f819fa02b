"""What a process of a tensor-parallel group computes with: plain torch, or an NVIDIA device of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import torch

from gpu_node.engine.border.executor import Executor
from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.group.torch_group import TorchGroup, gloo_group, nccl_group
from gpu_node.graph.passes.named import offload_passes
from shared.config.engines.engine import EngineOptions
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines


class RankSpec(msgspec.Struct, frozen=True):
    """One process's executor. Travels as JSON on the command line of the process."""

    executor: Literal["reference", "cuda"] = "reference"
    device: str = "cpu"
    """As torch names it. ``executor: cuda`` runs on ``cpu`` by Triton's interpreter, in tests."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the cuda executor's numbers; the reference has float32."""
    num_threads: int = 1
    pipelines: Pipelines = NO_PIPELINES

    def join(self, rank: int, world: int, store: Path) -> TorchGroup:
        """Take a place in the group, and wait for the others. `CollectiveError`."""
        device = self._claim()
        if device.type == "cuda":
            return nccl_group(rank, world, store, device)
        return gloo_group(rank, world, store)

    def make(self, options: EngineOptions, group: DeviceGroup = ALONE) -> Executor:
        """The executor, without a model."""
        device = self._claim()
        if self.executor == "reference":
            from gpu_node.executors.reference.executor import ReferenceExecutor

            return ReferenceExecutor(options, group=group, pipelines=self.pipelines)
        from gpu_node.executors.cuda.executor import CudaExecutor
        from gpu_node.kernels.triton.driver_module import use_built

        use_built()
        passes = offload_passes(options.offload, polls=options.offload_control != "host")
        return CudaExecutor(
            options, device, dtype=_DTYPES[self.dtype], passes=passes, group=group, pipelines=self.pipelines
        )

    def _claim(self) -> torch.device:
        torch.set_num_threads(self.num_threads)
        device = torch.device(self.device)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # Triton launches on the current one
        return device


_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
