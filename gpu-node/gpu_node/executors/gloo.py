"""A group of processes of one machine that add and gather over torch.distributed (gloo, over the loopback device)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu_node.executors.collectives import CollectiveError

TIMEOUT_S = 120.0
"""From the first device that joins, or comes to an all-reduce, to the last: they do the same, so more means a hang."""

_INTERFACE_ENV = "GLOO_SOCKET_IFNAME"


class GlooGroup:
    """This process's place in a group, which is its own and not torch.distributed's global one."""

    def __init__(self, rank: int, world: int, store: Path) -> None:
        """Join, and wait for the others; ``store`` is a file, not there before, that all of them name."""
        self.rank, self.world = rank, world
        os.environ.setdefault(_INTERFACE_ENV, _loopback())
        try:
            members = dist.FileStore(str(store), world)  # type: ignore[attr-defined]
            timeout = timedelta(seconds=TIMEOUT_S)
            self._group: Any = dist.ProcessGroupGloo(members, rank, world, timeout)
        except RuntimeError as error:
            raise CollectiveError(f"rank {rank} cannot join the group of {world}: {error}") from error

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all devices' ``x``."""
        total = x.clone()
        self._wait(lambda: self._group.allreduce([total]))
        return total

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The columns of all devices' ``x`` side by side."""
        parts = [torch.empty_like(x) for _ in range(self.world)]
        self._wait(lambda: self._group.allgather([parts], [x.contiguous()]))
        return torch.cat(parts, dim=1)

    def _wait(self, begin: Callable[[], dist.Work]) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise CollectiveError(f"rank {self.rank} of {self.world} lost the others: {error}") from error


def _loopback() -> str:
    """Gloo would listen on whatever interface the machine's name stands for."""
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
