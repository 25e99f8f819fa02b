"""Who attends for remote sequences: the border, and one in the same process with KV blocks of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gpu_node.kernels import operations
from gpu_node.kernels.paged_batch import PagedBatch


@dataclass(frozen=True, slots=True)
class AttentionTask:
    """One layer's attention of single rows, each the last of a sequence."""

    layer: int
    window: int | None
    """Tokens that a row sees; None: all before it."""
    q: torch.Tensor
    """[rows, heads * head_dim]: turned by position, as k is."""
    k: torch.Tensor
    """[rows, kv_heads * head_dim]: to be kept, with ``v``, for the steps to come."""
    v: torch.Tensor
    batch: PagedBatch
    """Where the rows lie, in blocks of the receiver."""


class Receiver(Protocol):
    """A device that keeps keys and values of sequences of this one."""

    def send(self, task: AttentionTask) -> None:
        """Ask for something; does not wait for it."""
        ...

    def gather(self, layer: int) -> torch.Tensor:
        """What came of the oldest task that is not gathered, which is of ``layer``: [rows, heads * head_dim]."""
        ...


class NoReceiverError(RuntimeError):
    """A program sends, and there is nobody to send to."""


class Nobody:
    """In the place of a receiver, where there is none."""

    def send(self, task: AttentionTask) -> None:
        """`NoReceiverError`, but for no rows."""
        if len(task.q):
            raise NoReceiverError(f"{len(task.q)} rows of layer {task.layer} are remote; this device has no receiver")

    def gather(self, layer: int) -> torch.Tensor:
        """Of no rows, nothing."""
        del layer
        return torch.empty(0, 1)


NOBODY = Nobody()


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
