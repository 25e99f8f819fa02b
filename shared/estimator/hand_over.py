"""What it takes to go on with a request's KV on another node: moving it there, or computing its tokens again.

Moving is AdaptiveLLM's copy (equations 2 to 4: bytes over the bandwidth of each way), with the network between the two
copies: out of the giver's device, from node to node, into the taker's device. Computing again is a prompt of as many
tokens on the taker. The shorter one is chosen; both begin with a round of messages, which is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from shared.estimator.batching import PRIOR_KV_BYTES_PER_S, rate_of, takes_kv
from shared.messages.nodes.nodes import NodeState

PRIOR_NETWORK_BYTES_PER_S = 10e9
"""From node to node before the first image. More than most have: else nothing would move, and nothing be measured."""

MOVE_S = 0.5
"""Of any move, where it is weighed: the step that runs, the way out, a place in the batch."""


@dataclass(frozen=True, slots=True)
class HandOverCost:
    """Seconds of both ways."""

    move_s: float
    """Infinite where the KV cannot go there: its blocks are cut otherwise, or host memory has no room for it."""
    recompute_s: float

    @property
    def moves_kv(self) -> bool:
        """Whether it is better to move it."""
        return self.move_s <= self.recompute_s

    @property
    def least_s(self) -> float:
        """Of the better way."""
        return min(self.move_s, self.recompute_s)


def network_s(giver: NodeState | None, taker: NodeState, num_bytes: float) -> float:
    """Seconds until so many bytes of KV have come from another node, by the slower network of both.

    A node measures what comes to it; its network is taken to be as fast in the other direction.
    """
    nodes = (taker,) if giver is None else (giver, taker)
    return num_bytes / min(node.network_bytes_per_s or PRIOR_NETWORK_BYTES_PER_S for node in nodes)


def hand_over_cost(
    giver: NodeState | None, taker: NodeState, model: str, kv_tokens: float, num_requests: int
) -> HandOverCost:
    """Of ``num_requests`` requests that have ``kv_tokens`` together. None: who gives is not known any more."""
    rate = rate_of(taker, model)
    num_bytes = kv_tokens * rate.kv_token_bytes
    each = kv_tokens / max(1, num_requests)
    rows_s = rate.cost.predict_s(each, each, each * (each + 1) / 2) - rate.cost.step_s
    recompute_s = max(1, num_requests) * rows_s
    if giver is not None and not takes_kv(giver, taker, model):
        return HandOverCost(inf, recompute_s)
    if not _has_room(giver, num_bytes) or not _has_room(taker, num_bytes / max(1, num_requests)):
        return HandOverCost(inf, recompute_s)
    copies_s = sum(num_bytes / (node.kv_bytes_per_s or PRIOR_KV_BYTES_PER_S) for node in (giver or taker, taker))
    return HandOverCost(copies_s + network_s(giver, taker, num_bytes), recompute_s)


def _has_room(node: NodeState | None, num_bytes: float) -> bool:
    """The giver holds all that leaves together; to the taker they come one by one, and go on to its device."""
    return node is None or node.max_image_bytes is None or num_bytes <= node.max_image_bytes
