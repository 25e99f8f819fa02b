"""Who gives up its blocks when memory runs out, and what becomes of what they hold."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import Protocol, TypeVar

from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.order import FirstComeFirstServed, RequestOrder, by_priority
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


class LowestFirst:
    """The victim is the running request of lowest priority (AdaptiveLLM, Algorithm 1)."""

    def __init__(self, order: RequestOrder | None = None) -> None:
        """By default who came last gives way."""
        self._order = order or FirstComeFirstServed()

    def victim(self, running: Collection[EngineRequest], now: float) -> EngineRequest:
        """The highest is never a victim while there is another, so somebody always advances."""
        return min(running, key=lambda request: by_priority(self._order, request, now))


class AlwaysRecompute(LowestFirst):
    """One prefill of the prompt and the output so far; needs no host memory."""

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """Recompute."""
        del request, blocks
        return KvFate.RECOMPUTE


class SwapIfRoom(LowestFirst):
    """To host memory while it has room for the whole request (PagedAttention, SOSP'23, §4.5)."""

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """Swap, unless there is nothing computed that a swap would save, or no room."""
        if not request.has_computed:
            return KvFate.RECOMPUTE
        has_room = blocks.can_swap_out([sequence.sequence_id for sequence in request.holders])
        return KvFate.SWAP if has_room else KvFate.NO_ROOM


class Cheaper(SwapIfRoom):
    """Whichever costs less: a swap, if host memory has room, or computing again (AdaptiveLLM, Algorithm 1)."""

    def __init__(self, costs: KvCosts, order: RequestOrder | None = None) -> None:
        super().__init__(order)
        self._costs = costs

    def fate(self, request: EngineRequest, blocks: BlockManager) -> KvFate:
        """As long as nothing is known of what computing costs, a swap. Blocks that others hold too stay cached."""
        fate = super().fate(request, blocks)
        if fate is KvFate.RECOMPUTE:
            return fate
        holders = [sequence.sequence_id for sequence in request.holders]
        recompute_s = self._costs.recompute_s(
            sum(sequence.num_computed_tokens for sequence in request.holders),
            blocks.num_lasting_blocks(holders) * blocks.block_size,
        )
        is_cheaper = recompute_s is None or self._costs.swap_s(blocks.num_distinct_blocks(holders)) < recompute_s
        return fate if is_cheaper else KvFate.RECOMPUTE


def preemption_policy(options: EngineOptions, costs: KvCosts, order: RequestOrder) -> PreemptionPolicy:
    """The policy that the configuration names."""
    match options.preemption:
        case "recompute":
            return AlwaysRecompute(order)
        case "swap" | "swap_only":  # the latter admits no more than it could swap
            return SwapIfRoom(order)
        case "adaptive":
            return Cheaper(costs, order)
