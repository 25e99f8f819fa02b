"""The border of the device that keeps the KV of remote sequences, and attends for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

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
    """A program sends, and there is no receiver."""


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
