"""Who gives up its blocks when memory runs out, and what becomes of what they hold."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Protocol, TypeVar

from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from shared.config.engine import EngineOptions


class KvFate(Enum):
    """Of the keys and values of a preempted request."""

    SWAP = auto()
    """They wait in host memory, and come back when it is the request's turn."""
    RECOMPUTE = auto()
    """They are dropped, and computed again when it is the request's turn."""
    NO_ROOM = auto()
    """The same, although a swap would be worth it: host memory has no room."""


class Ordered(Protocol):
    """A request in any engine."""

    @property
    def order(self) -> int:
        """Place in the order of arrival at its engine."""
        ...


R = TypeVar("R", bound=Ordered)


def newest(running: Collection[R]) -> R:
    """The request that came last."""
    return max(running, key=lambda request: request.order)


class PreemptionPolicy(Protocol):
    """Decides for all sequences of a request together."""

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        """One of ``running``, which is not empty. ``now`` in seconds on the clock of the scheduler's caller."""
        ...

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """What becomes of a victim's blocks, which it still holds. `KvFate.SWAP` only where host memory has room."""
        ...


class NewestFirst:
    """First come, first served: who came last gives way (PagedAttention, SOSP'23, §4.5)."""

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        """The request that came last; the oldest is never a victim while there is another, so it always advances."""
        del now
        return newest(running)


class AlwaysRecompute(NewestFirst):
    """One prefill of the prompt and the output so far; needs no host memory."""

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """Recompute."""
        del request, blocks
        return KvFate.RECOMPUTE


class SwapIfRoom(NewestFirst):
    """To host memory while it has room for the whole request (PagedAttention, SOSP'23, §4.5)."""

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """Swap, unless there is nothing computed that a swap would save, or no room."""
        if not request.has_computed:
            return KvFate.RECOMPUTE
        has_room = blocks.can_swap_out([sequence.sequence_id for sequence in request.holders])
        return KvFate.SWAP if has_room else KvFate.NO_ROOM


def preemption_policy(options: EngineOptions) -> PreemptionPolicy:
    """The policy that the configuration names."""
    match options.preemption:
        case "recompute":
            return AlwaysRecompute()
        case "swap":
            return SwapIfRoom()
