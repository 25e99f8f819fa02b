"""Whether more comes for a model than the nodes that hold it can do, though no request may wait yet.

Requests begin at once while batches have room, so no request waits until all batches are full; a load that is made only
then comes late by as long as it takes. Of λ requests a second a node does 1 / request_s
(`shared.estimator.batching`), in the batch that keeps their promises (`shared.estimator.harm`). So they come faster
than they leave where ::

    λ > Σ 1 / request_s    over the nodes that hold the model
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

from services.queue_manager.state.node import Node
from shared.estimator.batching import batching
from shared.estimator.harm import paced
from shared.estimator.mixture import mixture
from shared.messages.nodes.placement import Arrivals


def is_outrun(nodes: Iterable[Node], newcomers: Sequence[Arrivals]) -> bool:
    """Whether that is so of any model of which ``newcomers`` tell; O(nodes x kinds)."""
    holders: dict[str, list[Node]] = {}
    for node in nodes:
        holders.setdefault(node.model, []).append(node)
    models = dict.fromkeys(one.load.model for one in newcomers)
    return any(_is_outrun(holders.get(model, []), newcomers, model) for model in models)


def _is_outrun(holders: Sequence[Node], newcomers: Sequence[Arrivals], model: str) -> bool:
    holders = [node for node in holders if node.known.serves("prefill")] or holders
    kinds = [one for one in newcomers if one.load.model == model]
    shape = mixture(one.load for one in kinds)[model]
    promised = [(one.load.promised_s, one.load.promised_token_s) for one in kinds]
    able_per_s = fsum(1 / batching(paced(node.known, shape, promised), shape).request_s for node in holders)
    return fsum(one.rate_per_s for one in kinds) > able_per_s
