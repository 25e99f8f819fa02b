"""How much memory a device has, how much of it is in use, and what is left for keys and values."""

from __future__ import annotations

import gc
from typing import Protocol

import torch


class DeviceMemory(Protocol):
    """Of one device."""

    @property
    def total_bytes(self) -> int:
        """That it has."""
        ...

    def used_bytes(self) -> int:
        """In use, by whomever. What this process freed counts until `trim`: so after a step, it is the most of it."""
        ...

    def trim(self) -> None:
        """Give back what this process has freed."""
        ...


class CudaMemory:
    """Of a CUDA device. torch keeps what is freed for what comes, apart for each graph, until it is told otherwise."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def total_bytes(self) -> int:
        """As the driver says it."""
        return torch.cuda.mem_get_info(self._device)[1]

    def used_bytes(self) -> int:
        """Contexts and other processes included."""
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        return total_bytes - free_bytes

    def trim(self) -> None:
        """Also what is only in cycles that nobody reaches."""
        gc.collect()
        torch.cuda.empty_cache()


def device_memory(device: torch.device) -> DeviceMemory | None:
    """None where kernels are interpreted: there is nothing to measure."""
    return CudaMemory(device) if device.type == "cuda" else None


def left_for_kv(total_bytes: int, share: float, used_bytes: int, kv_bytes: int) -> int:
    """What a ``share`` of the device has for KV, where ``used_bytes`` were in use while KV had ``kv_bytes`` of them.

    Negative where all else takes more than the share.
    """
    return int(total_bytes * share) - (used_bytes - kv_bytes)
