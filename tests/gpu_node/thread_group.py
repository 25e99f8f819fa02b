"""Devices of a tensor-parallel group as threads of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch

PATIENCE_S = 30.0
"""After which the others of a group give up on one that failed."""


class ThreadRank:
    """One of the group; all ranks share a barrier and a list with a place for each."""

    def __init__(self, rank: int, barrier: Barrier, places: list[torch.Tensor]) -> None:
        self.rank, self.world = rank, barrier.parties
        self._barrier, self._places = barrier, places

    def all_reduce(self, x: torch.Tensor) -> None:
        """Added in the order of ranks."""
        x.copy_(torch.stack(self._exchanged(x)).sum(dim=0))

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Side by side."""
        return torch.cat(self._exchanged(x), dim=1)

    def _exchanged(self, x: torch.Tensor) -> list[torch.Tensor]:
        self._places[self.rank] = x
        self._barrier.wait(PATIENCE_S)
        everyones = [place.clone() for place in self._places]
        self._barrier.wait(PATIENCE_S)
        return everyones


def run_ranks(work: Sequence[Callable[[ThreadRank], torch.Tensor]]) -> list[torch.Tensor]:
    """What each rank's ``work`` gives, all at the same time."""
    barrier, places = Barrier(len(work)), [torch.empty(0)] * len(work)
    ranks = [ThreadRank(rank, barrier, places) for rank in range(len(work))]
    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(lambda do, rank: do(rank), work, ranks))
