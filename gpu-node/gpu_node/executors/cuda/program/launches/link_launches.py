"""Launches for other devices and by them: polls, sends, gathers. What they are about is looked up at each launch."""

from __future__ import annotations

import torch

from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving
from gpu_node.executors.cuda.program.lowered import BufferColumns, Launch
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.graph.share import Share
from gpu_node.kernels.triton.attention.gather import gather
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.cache import LayerCache
from gpu_node.kernels.triton.launch import queue


def poll_launch(serving: Serving, numbers: torch.Tensor) -> Launch:
    """A look at what others wait for; ``numbers``: of all blocks of the device."""

    def launch(_step: CudaStep) -> None:
        if serving.tasks is not None:
            poll(serving.tasks, numbers)

    return launch


def send_launch(
    asking: AskedDevice,
    qkv: tuple[BufferColumns, BufferColumns, BufferColumns],
    cache: LayerCache,
    share: Share,
    window: int,
) -> Launch:
    """Remote rows into the receiver's ring."""
    q, k, v = qkv

    def launch(step: CudaStep) -> None:
        if asking.ring is not None:
            send(asking.ring, q.of(step), k.of(step), v.of(step), cache, step.remote_rows(share), window)

    return launch


def gather_launch(
    asking: AskedDevice, serving: Serving, out: BufferColumns, numbers: torch.Tensor, share: Share
) -> Launch:
    """What came of them; meanwhile the device serves others."""

    def launch(step: CudaStep) -> None:
        rows = out.of(step)
        if asking.ring is not None and len(rows):
            queue("meanwhile", serving.meanwhile)
            gather(asking.ring, rows, serving.tasks, numbers, step.remote_rows(share).span)

    return launch
