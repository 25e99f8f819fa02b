"""Processes of one machine that add and gather over torch.distributed: by gloo, or by NCCL between NVIDIA devices.

Each group is its process's own, and not torch.distributed's global one. Its members find together by a file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions  # type: ignore[attr-defined]

from gpu_node.executors.collectives import CollectiveError

TIMEOUT_S = 120.0
"""From the first device that joins, or comes to an all-reduce, to the last: they do the same, so more means a hang."""

_INTERFACE_ENV = "GLOO_SOCKET_IFNAME"


class TorchGroup:
    """This process's place in a group. `CollectiveError` when the others are gone."""

    def __init__(self, rank: int, world: int, backend: Any) -> None:
        """``backend``: a process group of torch.distributed."""
        self.rank, self.world = rank, world
        self._backend = backend

    def all_reduce(self, x: torch.Tensor) -> None:
        """Put the sum of all devices' ``x`` in its place."""
        options = AllreduceOptions()
        options.asyncOp = False
        self._wait(lambda: self._backend.allreduce([x], options))

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The columns of all devices' ``x`` side by side."""
        parts = [torch.empty_like(x) for _ in range(self.world)]
        options = AllgatherOptions()
        options.asyncOp = False
        if x.numel():
            self._wait(lambda: self._backend.allgather([parts], [x.contiguous()], options))
        return torch.cat(parts, dim=1)

    def abort(self) -> None:
        """End what waits for devices that are gone; nothing can be done together after that."""
        self._backend.abort()

    def _wait(self, begin: Callable[[], dist.Work | None]) -> None:
        """Until it is done or, on a device, in its queue."""
        try:
            if (work := begin()) is not None:
                work.wait()
        except RuntimeError as error:
            raise CollectiveError(f"rank {self.rank} of {self.world} lost the others: {error}") from error


def gloo_group(rank: int, world: int, store: Path) -> TorchGroup:
    """Join over the loopback device, and wait for the others; all of them name ``store``, a file not there before."""
    os.environ.setdefault(_INTERFACE_ENV, _loopback())
    timeout = timedelta(seconds=TIMEOUT_S)
    backend = _join(rank, world, store, lambda members: dist.ProcessGroupGloo(members, rank, world, timeout))
    return TorchGroup(rank, world, backend)


def nccl_group(rank: int, world: int, store: Path, device: torch.device) -> TorchGroup:
    """Join with this process's own ``device``, over NVLink or PCIe, and add something: what NCCL lacks shows here.

    What is done together comes into the queue of the current stream (``asyncOp`` is false), like any launch, and the
    host does not wait. So it can be captured in a graph, where every rank captures the same and torch is told
    ``capture_error_mode="thread_local"``: NCCL's watchdog, a thread of its own, asks for events meanwhile. Where
    another device is gone, what waits for it is ended by `abort`, or the process by the watchdog after `TIMEOUT_S`.
    """

    def connect(members: Any) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=TIMEOUT_S)
        return dist.ProcessGroupNCCL(members, rank, world, options)

    group = TorchGroup(rank, world, _join(rank, world, store, connect))
    one = torch.ones(1, device=device)
    group.all_reduce(one)
    if one.item() != world:
        raise CollectiveError(f"rank {rank} of {world}: a sum over {device} and the others' devices is {one.item():g}")
    return group


def _join(rank: int, world: int, store: Path, connect: Callable[[Any], Any]) -> Any:
    try:
        return connect(dist.FileStore(str(store), world))  # type: ignore[attr-defined]
    except RuntimeError as error:
        raise CollectiveError(f"rank {rank} cannot join the group of {world}: {error}") from error


def _loopback() -> str:
    """Gloo would listen on whatever interface the machine's name stands for."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
