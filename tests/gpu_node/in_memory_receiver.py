"""A receiver in the same process, with KV blocks of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from gpu_node.executors.reference.receiver import AttentionTask
from gpu_node.kernels import operations


class InMemoryReceiver:
    """Keys and values in tensors of its own. It serves as late as may be, so nothing is right by luck."""

    def __init__(self, kv_caches: Sequence[torch.Tensor]) -> None:
        """``kv_caches`` of each layer, as `operations.write_kv` takes them."""
        self.kv_caches = kv_caches
        self._tasks: deque[AttentionTask] = deque()

    def send(self, task: AttentionTask) -> None:
        """Keep the task, as it is now."""
        self._tasks.append(task)

    def gather(self, layer: int) -> torch.Tensor:
        """Serve the oldest task."""
        task = self._tasks.popleft()
        assert task.layer == layer, "tasks are gathered in the order in which they were sent"
        cache = self.kv_caches[layer]
        operations.write_kv(task.k, task.v, cache, task.batch)
        if task.window is None:
            return operations.paged_attention(task.q, cache, task.batch)
        return operations.window_attention(task.q, cache, task.batch, task.window)
