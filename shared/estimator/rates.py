"""What is known of a model on one node holds for others too: of its kind, or at least better than for none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from shared.estimator.batching import PRIOR_SWAP_S
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate


def share_rates(nodes: Sequence[NodeState], models: Sequence[str]) -> list[NodeState]:
    """The nodes, each with a rate of every model that it may load; O(nodes x models).

    Where it has none of its own, the first is taken of: a node of its kind, any node, another model on the node itself.
    What no node has run stays unknown, and the estimator's priors hold.
    """
    if all(len(node.rates) >= len(models) for node in nodes):
        return list(nodes)
    lenders = _Lenders(nodes)
    return [
        msgspec.structs.replace(node, rates=[*node.rates, *lenders.lent(node, models)])
        if len(node.rates) < len(models)
        else node
        for node in nodes
    ]


class _Lenders:
    """What all nodes together have measured."""

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        self._of_kind: dict[tuple[str, str], ModelRate] = {}
        self._of_any: dict[str, ModelRate] = {}
        self._load_s: dict[tuple[str, str], float] = {}
        """The longest, by kind of device and model."""
        for node in nodes:
            for rate in node.rates:
                key = node.device, rate.model
                self._of_kind.setdefault(key, rate)
                self._of_any.setdefault(rate.model, rate)
                # what is on the device costs nothing now, but is what was loaded last
                load_s = node.swap_s if rate.model == node.model else rate.load_s
                self._load_s[key] = max(self._load_s.get(key, 0.0), load_s)

    def lent(self, node: NodeState, models: Sequence[str]) -> list[ModelRate]:
        """Rates of the models that this node may load and has not measured."""
        own = {rate.model for rate in node.rates}
        rates = []
        for model in models:
            if model in own or model in node.broken_models:
                continue
            rate = self._of_kind.get((node.device, model)) or self._of_any.get(model)
            load_s = self._until_loaded_s(node, model)
            if rate is not None:
                rates.append(replace(rate, load_s=load_s))
            elif node.rates:
                rates.append(node.rates[0].lent_to(model, load_s))
        return rates

    def _until_loaded_s(self, node: NodeState, model: str) -> float:
        """As others of its kind have measured, else as its own last swap. On this node the weights are on disk yet."""
        if node.model == model:
            return 0.0
        return self._load_s.get((node.device, model), 0.0) or node.swap_s or PRIOR_SWAP_S
