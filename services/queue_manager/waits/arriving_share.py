"""What share of the requests that come for a model comes to which node: one rule for all that foresees newcomers.

They come to the nodes that hold their model, to each as much as it does of what all of these can do. Where none holds
it at the moment, to the one that did last: the work of others has been placed elsewhere on their account, so they go on
there. Where that is gone, too, to any that can load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from shared.estimator.batching import batching
from shared.messages.nodes.placement import RequestShape


def arriving_shares(state: State, shape: RequestShape) -> dict[str, float]:
    """By node, of all requests like these, those that come to it; nodes to which none do are left out. O(nodes)."""
    places = _places(state, shape.model)
    known = {(node.known.device, node.known.phases): node.known for node in places}
    per_s = {kind: 1 / batching(one, shape).request_s for kind, one in known.items()}
    all_per_s = fsum(per_s[node.known.device, node.known.phases] for node in places)
    return {node.node: per_s[node.known.device, node.known.phases] / all_per_s for node in places}


def _places(state: State, model: str) -> Sequence[Node]:
    able = [node for node in state.nodes.values() if model not in node.known.broken_models]
    holders = [node for node in able if node.model == model]
    holders = [node for node in holders if node.known.serves("prefill")] or holders
    last = state.last_holders.get(model)
    return holders or [node for node in able if node.node == last] or able
