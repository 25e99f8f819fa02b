"""What can be true of what a node tells of itself: one number that cannot be would spoil every prediction beside it.

A node whose clock was stepped, or whose measurements have run over, tells of steps that take no time, a negative one or
none that is a number. The estimator divides by such numbers, for each request that comes, wherever it goes. So they end
here: a rate that cannot be is left out, and borrowed from other nodes like one that was not measured; a number of the
node counts as not told. The node itself goes on.
"""

from __future__ import annotations

import msgspec

from shared.messages.nodes.nodes import UNMEASURED, NodeFacts
from shared.messages.nodes.step_cost import ModelRate

# Wide of all that there is: what lies beyond them is a mistake, not a fast or a slow device.
LEAST_STEP_S = 1e-9
MOST_S = 1e6
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 1.0, 1e15
MOST_ROWS = 1e4
"""Of a sequence in a step."""
MOST_COUNT = 1 << 48
"""Tokens, bytes, sequences."""


def credible(facts: NodeFacts) -> tuple[NodeFacts, list[str]]:
    """The facts without what cannot be, and what was left out: names of fields, and of models whose rate it was."""
    kept: dict[str, object] = {}
    for name in ("max_num_seqs", "step_tokens"):
        if not _is_count(getattr(facts, name)):
            kept[name] = 0
    if facts.max_image_bytes is not None and not _is_count(facts.max_image_bytes):
        kept["max_image_bytes"] = None
    for name in ("kv_bytes_per_s", "network_bytes_per_s"):
        rate = getattr(facts, name)
        if rate != UNMEASURED and not LEAST_BYTES_PER_S <= rate <= MOST_BYTES_PER_S:
            kept[name] = UNMEASURED
    if not _is_time(facts.swap_s):
        kept["swap_s"] = UNMEASURED
    rates = [rate for rate in facts.rates if _can_be(rate)]
    doubted = list(kept)
    if len(rates) < len(facts.rates):
        doubted += (f"rates: {rate.model}" for rate in facts.rates if not _can_be(rate))
    if not doubted:
        return facts, []
    return msgspec.structs.replace(facts, **kept, rates=rates), doubted


def _can_be(rate: ModelRate) -> bool:
    """A step takes some time, and no number of it is negative, endless or none (NaN compares with nothing)."""
    cost = rate.cost
    return (
        all(map(_is_time, cost.numbers))
        and cost.step_s + cost.token_s >= LEAST_STEP_S
        and _is_count(rate.kv_tokens)
        and _is_count(rate.kv_token_bytes)
        and _is_count(rate.step_tokens)
        and 1.0 <= rate.decode.tokens <= rate.decode.rows <= MOST_ROWS
        and _is_time(rate.load_s)
        and 0.0 <= rate.cached_share <= 1.0
    )


def _is_time(seconds: float) -> bool:
    return 0.0 <= seconds <= MOST_S


def _is_count(number: int) -> bool:
    return 0 <= number <= MOST_COUNT
