"""What the devices of a tensor-parallel group do together."""

from __future__ import annotations

from typing import Protocol

import torch


class CollectiveError(RuntimeError):
    """The devices of a group could not do something together: one of them is gone, or hangs."""


class DeviceGroup(Protocol):
    """All devices of a group call the same in the same order."""

    @property
    def rank(self) -> int:
        """Number of this device, from 0 on."""
        ...

    @property
    def world(self) -> int:
        """How many devices there are."""
        ...

    def all_reduce(self, x: torch.Tensor) -> None:
        """Put the sum of all devices' ``x`` [rows, columns] in its place, the same bits on each. `CollectiveError`.

        Its rows lie one behind the other.
        """
        ...

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """The columns of all devices' ``x`` [rows, columns] side by side, in the order of ranks. `CollectiveError`."""
        ...


class Alone:
    """A group of one device."""

    rank, world = 0, 1

    def all_reduce(self, x: torch.Tensor) -> None:
        """It is the sum."""

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Its own."""
        return x


ALONE = Alone()
