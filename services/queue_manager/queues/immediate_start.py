"""At which node a newcomer begins, while it begins at once at any: where it costs the promises least.

A batch that has room takes a request at once, so none waits; what the choice decides is how long answers take. With
r requests there, the newcomer's answer takes (`shared.estimator.batching`; QLM's C = W + P + D, SoCC'24 §5, W = 0) ::

    answer_s = first_token_at(r + 1) + (o - 1) * step_at(r + 1)

and each of the r others is delayed by what its rows add to the steps: ``prompt_rows_s + o * row_s``. Seconds are
weighed by what they are seconds of: a share of the time that was promised. So work that is urgent goes to fast devices
and to small batches, and work that is not goes where it disturbs least::

    cost = answer_s / promise_s + Σ_r delay_s / promise_s(r)
"""

from __future__ import annotations

import math

from services.queue_manager.state.node_counts import PATIENCE_S, is_full, promises_per_s
from services.queue_manager.state.state import Node, State
from shared.estimator.batching import batching
from shared.messages.placement import GroupLoad


class ImmediateStarts:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def best(self, load: GroupLoad, promise_s: float) -> Node | None:
        """Of the nodes at which such a request begins at once the one that it costs least; None if there is none.

        ``promise_s`` is the time that it was promised to take at most. O(nodes), but for those that have changed.
        """
        best, least = None, math.inf
        for node in self._state.nodes.values():
            if node.model != load.model or node.known.is_loading or load.model in node.known.broken_models:
                continue
            cost = self._cost(node, load, promise_s)
            if cost is not None and (cost, node.node) < (least, best.node if best else ""):
                best, least = node, cost
        return best

    def _cost(self, node: Node, load: GroupLoad, promise_s: float) -> float | None:
        """None where there is no room, or a model has to be loaded before."""
        if is_full(node):
            return None
        work = batching(node.known, load)
        num_running = node.num_members + 1
        if node.num_members and num_running > work.batch:  # alone, however small the batch
            return None
        per_s = promises_per_s(self._state, node)
        if math.isinf(per_s):
            return None
        answer_s = work.first_token_at(num_running) + (work.output_tokens - 1) * work.step_at(num_running)
        delay_s = work.prompt_rows_s + work.output_tokens * work.row_s
        return answer_s / min(PATIENCE_S, promise_s) + delay_s * per_s
