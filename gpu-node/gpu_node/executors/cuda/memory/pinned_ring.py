"""Host memory that a device copies out of by itself: a ring of buffers, none written while a copy may still read it."""

from __future__ import annotations

from collections import deque

import torch

from gpu_node.executors.cuda.memory.marks import Mark


class PinnedRing:
    """Buffers in turn: `next` gives one to write, `queued` says where its copy is over."""

    def __init__(self, num_buffers: int, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        is_pinned = device.type == "cuda"
        self._buffers = deque(torch.empty(shape, dtype=dtype, pin_memory=is_pinned) for _ in range(num_buffers))
        self._copied: deque[Mark] = deque(maxlen=num_buffers)

    def next(self) -> torch.Tensor:
        """The buffer that was given longest ago, once its copy is over. Asked again, the same until `queued`."""
        if len(self._copied) == len(self._buffers):
            self._copied[0].wait()
        return self._buffers[0]

    def queued(self, copied: Mark) -> None:
        """A copy out of that buffer is queued, and over at ``copied``."""
        self._copied.append(copied)
        self._buffers.rotate(-1)
