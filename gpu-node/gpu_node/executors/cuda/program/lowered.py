"""A program as launches on a CUDA device, and the buffers that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from gpu_node.executors.cuda.program.lane_streams import LaneLaunches
from gpu_node.executors.cuda.program.link_ends import AskedDevice
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.graph.program import Rows
from gpu_node.graph.share import Share

Launch = Callable[[CudaStep], None]


@dataclass(frozen=True, slots=True, eq=False)
class BufferColumns:
    """Some columns of a buffer, in the rows of a share. There is one of each."""

    numbers: torch.Tensor
    rows: Rows
    share: Share

    def of(self, step: CudaStep) -> torch.Tensor:
        """Those rows that the step has."""
        found = step.views.get(self)
        if found is None:
            found = step.views[self] = self.numbers[step.rows(self.rows, self.share)]
        return found


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program on a device."""

    launches: tuple[Launch, ...]
    buffers: Mapping[str, torch.Tensor]
    """[most rows, columns] or [most draws, columns], by name."""
    result: str
    lanes: LaneLaunches | None = None
    """The same in lanes, for steps in a pipeline."""
    asking: AskedDevice = field(default_factory=AskedDevice)
    """The device that attends its remote rows, if it sends."""
    most_under_way: int = 0
    """Tasks that are sent before the oldest is gathered."""
    splits_on_device: bool = False
    """Whether it can be launched for steps of which the device knows how many rows are remote."""
    num_of_any: int = 0
    """Launches, from the first on, that depend on nothing but how many rows a step has."""

    @property
    def logits(self) -> torch.Tensor:
        """float32 [most draws, vocabulary]."""
        return self.buffers[self.result]
