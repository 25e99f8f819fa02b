"""What is known of a model on one node holds for others too: of its kind, or at least better than for none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from shared.batching import PRIOR_SWAP_S
from shared.placement import NodeState
from shared.step_cost import ModelRate


def share_rates(nodes: Sequence[NodeState], models: Sequence[str]) -> list[NodeState]:
    """The nodes, each with a rate of every model that it may load.

    Where it has none of its own, the first is taken of: a node of its kind, any node, another model on the node itself.
    What nobody has run stays unknown, and the estimator's priors hold.
    """
    return [
        msgspec.structs.replace(node, rates=[*node.rates, *_borrowed(node, nodes, models)])
        if len(node.rates) < len(models)
        else node
        for node in nodes
    ]


def _borrowed(node: NodeState, nodes: Sequence[NodeState], models: Sequence[str]) -> list[ModelRate]:
    own = {rate.model for rate in node.rates}
    rates = []
    for model in models:
        if model in own or model in node.broken_models:
            continue
        rate = _known(model, [other for other in nodes if other.device == node.device]) or _known(model, nodes)
        if rate is None and node.rates:
            rate = node.rates[0]
        if rate is not None:
            rates.append(replace(rate, model=model, load_s=_load_s(node, nodes, model)))
    return rates


def _known(model: str, nodes: Sequence[NodeState]) -> ModelRate | None:
    return next((rate for node in nodes for rate in node.rates if rate.model == model), None)


def _load_s(node: NodeState, nodes: Sequence[NodeState], model: str) -> float:
    """As others of its kind have measured, else as its own last swap. On this node the weights are on disk yet."""
    if node.model == model:
        return 0.0
    measured = [
        rate.load_s for other in nodes if other.device == node.device for rate in other.rates if rate.model == model
    ]
    return max(measured, default=0.0) or node.swap_s or PRIOR_SWAP_S
