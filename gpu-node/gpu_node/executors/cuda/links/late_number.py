"""A number that launches write, for a host that does not wait for them."""

from __future__ import annotations

import torch

from gpu_node.executors.cuda.memory.marks import Mark, mark


class LateNumber:
    """What the number was of late."""

    def __init__(self, there: torch.Tensor) -> None:
        """``there``: int64 [1]."""
        self._there = there
        self._here = torch.zeros(1, dtype=torch.int64, pin_memory=there.is_cuda)
        self._copied: Mark | None = None
        self._value = 0

    def look(self) -> int:
        """As of the last copy that has come; asks for the next one."""
        if self._copied is None:
            self._here.copy_(self._there, non_blocking=True)
            self._copied = mark(self._there.device)
        if self._copied.is_passed():
            self._value, self._copied = int(self._here), None
        return self._value
