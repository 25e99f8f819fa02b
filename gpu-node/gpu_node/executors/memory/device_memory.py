"""How much memory a device has, how much of it is in use, and what is left for keys and values."""

from __future__ import annotations

import gc
from typing import Protocol

import torch

from gpu_node.executors.collectives import ALONE, DeviceGroup


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
        """Also what is only in unreachable cycles."""
        gc.collect()
        torch.cuda.empty_cache()


class GroupMemory:
    """Of devices that share models: they have to cut their memory into the same blocks, so the tightest counts for all.

    Each of them asks at the same points of a load.
    """

    def __init__(self, own: DeviceMemory, group: DeviceGroup, device: torch.device) -> None:
        """``device``: this process's own, on which numbers are exchanged."""
        self._own = own
        self._group = group
        self._device = device
        self.total_bytes = min(self._everyones(own.total_bytes))

    def used_bytes(self) -> int:
        """On the device that has most of it in use."""
        return max(self._everyones(self._own.used_bytes()))

    def trim(self) -> None:
        """On this one."""
        self._own.trim()

    def _everyones(self, num_bytes: int) -> list[int]:
        numbers = self._group.all_gather(torch.tensor([[num_bytes]], device=self._device))
        return [int(number) for number in numbers[0]]


def device_memory(device: torch.device, group: DeviceGroup = ALONE) -> DeviceMemory | None:
    """None where kernels are interpreted: there is nothing to measure."""
    if device.type != "cuda":
        return None
    own = CudaMemory(device)
    return own if group.world == 1 else GroupMemory(own, group, device)


def left_for_kv(total_bytes: int, share: float, used_bytes: int, kv_bytes: int) -> int:
    """What a ``share`` of the device has for KV, where ``used_bytes`` were in use while KV had ``kv_bytes`` of them.

    Negative where all else takes more than the share.
    """
    return int(total_bytes * share) - (used_bytes - kv_bytes)
