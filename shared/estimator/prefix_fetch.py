"""What it takes to have the beginning of a prompt at a node: reading it in another node's cache, or computing it.

Reading is a copy out of the giver's device, the network, and a copy into the taker's (as in
`shared.estimator.hand_over`), behind an answer of the giver's engine, which comes between two steps. Computing is
what the tokens add to steps that run anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from shared.estimator.batching import rate_of
from shared.estimator.hand_over import PRIOR_NETWORK_BYTES_PER_S, network_s
from shared.messages.nodes.nodes import NodeState
from shared.messages.prefixes.prefix_ask import MAX_PREFIX_BYTES

ASK_S = 0.02
"""For the question, its answer and the connections."""

GAIN = 2.0
"""Computing has to take so many times as long: predicted networks are rough, and two devices have work of a fetch."""

PRIOR_COPY_BYTES_PER_S = PRIOR_NETWORK_BYTES_PER_S
"""Between a device and host memory, before the first move there: fast, as networks are taken to be. A node that was
taken to be slow would never be asked, and so stay unmeasured; the first fetch measures it."""

PATIENCE = 1.5
"""Of the time that computing takes, a fetch has so much; then it is computed after all."""

LEAST_WITHIN_S = 0.5
"""A fetch has so much in any case: a busy giver answers between two steps."""


@dataclass(frozen=True, slots=True)
class PrefixCost:
    """Seconds of both ways."""

    fetch_s: float
    """Infinite where it cannot go there."""
    compute_s: float

    @property
    def pays(self) -> bool:
        """Whether it is to be fetched."""
        return GAIN * self.fetch_s <= self.compute_s

    @property
    def within_s(self) -> float:
        """How long a fetch may take."""
        return max(LEAST_WITHIN_S, PATIENCE * self.compute_s)


def prefix_cost(giver: NodeState, taker: NodeState, model: str, from_tokens: int, to_tokens: int) -> PrefixCost:
    """Of the tokens of a prompt that lie between these numbers, which the giver has and the taker lacks."""
    rate, given = rate_of(taker, model), rate_of(giver, model)
    num_tokens = to_tokens - from_tokens
    attended = (to_tokens * (to_tokens + 1) - from_tokens * (from_tokens + 1)) / 2
    compute_s = rate.cost.predict_s(num_tokens, to_tokens, attended) - rate.cost.step_s
    num_bytes = num_tokens * rate.kv_token_bytes
    has_room = all(num_bytes <= (node.max_image_bytes or 0) for node in (giver, taker))
    if not rate.kv_format or rate.kv_format != given.kv_format or not has_room:
        return PrefixCost(inf, compute_s)
    copies_s = sum(num_bytes / (node.kv_bytes_per_s or PRIOR_COPY_BYTES_PER_S) for node in (giver, taker))
    return PrefixCost(ASK_S + given.cost.step_s + copies_s + network_s(giver, taker, num_bytes), compute_s)


def most_tokens(node: NodeState, model: str) -> int:
    """That a node gives at a time."""
    return MAX_PREFIX_BYTES // max(1, rate_of(node, model).kv_token_bytes)
