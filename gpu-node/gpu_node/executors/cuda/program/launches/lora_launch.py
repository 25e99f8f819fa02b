"""The launch of what adapters add to a product."""

from __future__ import annotations

import torch

from gpu_node.executors.cuda.program.lowered import BufferColumns, Launch
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.graph.program import Rows
from gpu_node.kernels.triton.lora import lora


def lora_launch(x: BufferColumns, out: BufferColumns, shrink: torch.Tensor, expand: torch.Tensor) -> Launch:
    """In the rows of ``out``, of tokens or of draws; whose these are is read on the device."""

    def launch(step: CudaStep) -> None:
        draw_rows = step.draw_rows(out.share) if out.rows is Rows.DRAWS else None
        adapters = step.adapters(out.share) if draw_rows is None else step.all_adapters
        lora(x.of(step), shrink, expand, adapters, draw_rows, out.of(step))

    return launch
