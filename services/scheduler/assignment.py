"""Which model an empty node is given: what is wanted and no node has, then the scarcest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shared.messages.nodes.placement import GroupLoad


def demand_of(groups: Iterable[GroupLoad]) -> dict[str, float]:
    """Tokens still to be computed by model, prompts included."""
    demand: dict[str, float] = {}
    for load in groups:
        tokens = load.num_waiting * (load.mean_prompt_tokens + load.mean_output_tokens) + load.running_output_tokens
        demand[load.model] = demand.get(load.model, 0.0) + tokens
    return demand


def next_model(models: Iterable[str], broken: Sequence[str], held: Sequence[str], demand: Mapping[str, float]) -> str:
    """The model with most demand of those that no node has (``held``, one entry a node), else the scarcest.

    Of equals the one with more demand, then the first; ``""`` where none can be had. A plan may swap it later.
    """

    def order(model: str) -> tuple[bool, int, float]:
        tokens, num_holders = demand.get(model, 0.0), held.count(model)
        return not (tokens and not num_holders), num_holders, -tokens

    return min((model for model in models if model not in broken), key=order, default="")
