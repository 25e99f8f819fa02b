"""Who gives up its blocks when memory runs out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from gpu_node.engine.sequence import Request


class PreemptionPolicy(Protocol):
    """Chooses among running requests. Its KV is dropped and computed again when it is its turn."""

    def victim(self, running: Collection[Request], now: float) -> Request:
        """One of ``running``, which is not empty. ``now`` in seconds on the clock of the scheduler's caller."""
        ...


class NewestFirst:
    """First come, first served: who came last gives way (PagedAttention, SOSP'23, §4.5)."""

    def victim(self, running: Collection[Request], now: float) -> Request:
        """The request that came last; the oldest is never a victim while there is another, so it always advances."""
        del now
        return max(running, key=lambda request: request.order)
