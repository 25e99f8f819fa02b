"""What a heartbeat tells of a node, and when that is news for the queue manager."""

from __future__ import annotations

import msgspec

from shared.estimator.estimator import swap_s
from shared.messages.nodes.nodes import Heartbeat, NodeState
from shared.messages.nodes.step_cost import ModelRate

NEWS_SHARE = 0.1  # learnt numbers that change by less are not told again


def node_state(beat: Heartbeat, known: NodeState | None, now: float) -> NodeState:
    """The node as placement sees it, which knew it like this before; ``beat`` tells what can be (`credible`)."""
    state = NodeState.of(beat.facts, beat.node, beat.loading or beat.model)
    if not beat.loading:
        return state
    if known is not None and known.is_loading and known.model == beat.loading:
        return msgspec.structs.replace(state, ready_at_s=known.ready_at_s)
    return msgspec.structs.replace(state, ready_at_s=now + swap_s(state, "", beat.loading))


def has_changed(told: NodeState, state: NodeState) -> bool:
    """Whether it serves another model, or something else than was told, or learnt more than a little."""
    known = {rate.model: rate for rate in told.rates}
    return (
        (told.model, told.broken_models, told.device) != (state.model, state.broken_models, state.device)
        or (told.lacks, told.phases, told.follows_load) != (state.lacks, state.phases, state.follows_load)
        or told.is_loading != state.is_loading
        or (told.max_num_seqs, told.step_tokens) != (state.max_num_seqs, state.step_tokens)
        or told.max_image_bytes != state.max_image_bytes
        or _is_off(told.kv_bytes_per_s, state.kv_bytes_per_s)
        or _is_off(told.network_bytes_per_s, state.network_bytes_per_s)
        or _is_off(told.swap_s, state.swap_s)
        or known.keys() != {rate.model for rate in state.rates}
        or any(_rate_is_off(known[rate.model], rate) for rate in state.rates)
    )


def _rate_is_off(told: ModelRate, rate: ModelRate) -> bool:
    return (
        (told.kv_tokens, told.kv_token_bytes, told.step_tokens)
        != (rate.kv_tokens, rate.kv_token_bytes, rate.step_tokens)
        or _is_off(told.load_s, rate.load_s)
        or abs(told.cached_share - rate.cached_share) > NEWS_SHARE
        or any(map(_is_off, told.cost.numbers, rate.cost.numbers))
        or any(map(_is_off, told.decode.numbers, rate.decode.numbers))
    )


def _is_off(told: float, value: float) -> bool:
    return abs(value - told) > NEWS_SHARE * abs(told)
