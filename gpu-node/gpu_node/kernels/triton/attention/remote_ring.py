"""The sender's side of a ring: how far it is with its tasks, and where the rows and blocks of a step lie there."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gpu_node.kernels.triton.attention.task_ring import PollCounters, TaskRing
from gpu_node.kernels.triton.cache import Places

MAX_LOOKS = 1_000_000
"""Before a receiver is lost: of a microsecond each, about what a client may wait for a token."""


@dataclass(frozen=True, slots=True)
class RemoteRing:
    """What a device asks of one receiver. Counters are int64 and only grow, as the receiver's do."""

    ring: TaskRing
    asked: torch.Tensor
    """[1]: of the receiver."""
    served: torch.Tensor
    """[1]: of the receiver."""
    refused: torch.Tensor
    """[1]: of the receiver."""
    places: Places
    """Where the receiver's blocks of the sender's model begin."""
    sent: torch.Tensor
    """[1]: tasks that were asked for here."""
    gathered: torch.Tensor
    """[1]: those whose answers were taken, or given up."""
    arrived: torch.Tensor
    """[2]: programs of the running send and of the running gather that have done their part."""
    lost: torch.Tensor
    """int32 [1]: 1 once an answer was not there in time, or was refused."""
    max_looks: int = MAX_LOOKS

    @classmethod
    def new(cls, counters: PollCounters, ring: TaskRing, places: Places, max_looks: int = MAX_LOOKS) -> RemoteRing:
        """For a receiver whose polls look at ``counters`` and ``ring``, from its first task on."""
        return cls.of((counters.asked, counters.served, counters.refused), ring, places, max_looks)

    @classmethod
    def of(
        cls, counters: tuple[torch.Tensor, torch.Tensor, torch.Tensor], ring: TaskRing, places: Places, max_looks: int
    ) -> RemoteRing:
        """For a receiver of which the sender sees what is asked, served and refused."""
        device = ring.q.device
        sent, gathered, arrived = (torch.zeros(size, dtype=torch.int64, device=device) for size in (1, 1, 2))
        lost = torch.zeros(1, dtype=torch.int32, device=device)
        return cls(ring, *counters, places, sent, gathered, arrived, lost, max_looks)

    @property
    def is_lost(self) -> bool:
        """Whether the receiver has missed an answer; waits for what is queued."""
        return bool(self.lost)


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """Single rows of a step, each the last of a sequence, where the receiver has them. Tensors are int32."""

    positions: torch.Tensor
    """[rows]."""
    first_blocks: torch.Tensor
    """[rows]: the place of each one's first block in ``block_lines``."""
    block_lines: torch.Tensor
    """[blocks]: of the receiver."""
    span: torch.Tensor | None = None
    """[3]: the first remote row, the first remote sequence, and how many there are, where they are read on the device:
    then ``positions`` are of all rows, and ``first_blocks`` of all sequences. None: all of them are remote."""
