"""The queues of a CUDA device that moves of blocks go to, and what one waits for of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from gpu_node.executors.memory.block_moves import Lane, Move


class Lanes(Protocol):
    """Makes the moves of one model, as `BlockMoves` orders them."""

    def make(self, move: Move, work: Callable[[], None]) -> None:
        """Queue ``work``, which launches what ``move`` says; a move of the process is made at once."""
        ...

    def drain(self) -> None:
        """Wait until everything that was queued is done, steps too."""
        ...


class StreamLanes:
    """Of a CUDA device: the current stream computes, another one copies."""

    def __init__(self, copies: torch.cuda.Stream) -> None:
        """``copies`` is shared by all models: they share host memory, too."""
        self._copies = copies
        self._ends: dict[int, Any] = {}  # of each slot, the event behind the last move that was queued for it

    def make(self, move: Move, work: Callable[[], None]) -> None:
        """With events, so that no queue waits for more than it must."""
        if move.lane is Lane.PROCESS:
            if move.after is not None:
                self._ends[move.slot].synchronize()
            work()
            return
        stream = self._copies if move.lane is Lane.COPY else torch.cuda.current_stream(self._copies.device)
        if move.slot not in self._ends:
            self._ends[move.slot] = torch.cuda.Event()  # type: ignore[no-untyped-call]
        elif move.after is not None:
            stream.wait_event(self._ends[move.slot])
        with torch.cuda.stream(stream):
            work()
        self._ends[move.slot].record(stream)

    def drain(self) -> None:
        """Whatever the streams."""
        torch.cuda.synchronize(self._copies.device)


class DirectLanes:
    """Where kernels are interpreted: a move is made when it is queued."""

    def make(self, move: Move, work: Callable[[], None]) -> None:
        """All before it are made."""
        del move
        work()

    def drain(self) -> None:
        """There is nothing to wait for."""


def copy_stream(device: torch.device) -> torch.cuda.Stream | None:
    """A queue beside the one that computes; None where kernels are interpreted."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def lanes(copies: torch.cuda.Stream | None) -> Lanes:
    """The queues of a model."""
    return DirectLanes() if copies is None else StreamLanes(copies)
