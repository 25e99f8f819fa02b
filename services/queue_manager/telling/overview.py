"""What an operator sees of the queue (``/status``)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.predictions import Predictions
from shared.estimator.estimator import GroupForecast

MAX_GROUPS = 100  # groups that are listed: the queues in order, node by node, then groups without a place


class Overview:
    """Describes the state as of the last message; changes nothing."""

    def __init__(self, state: State, predictions: Predictions) -> None:
        self._state = state
        self._predictions = predictions

    def describe(self) -> dict[str, object]:
        """Sizes, the first groups, and the nodes."""
        state = self._state
        return {
            "num_requests": len(state.requests),
            "num_groups": len(state.groups),
            "groups": list(islice(self._groups(), MAX_GROUPS)),
            "nodes": {node.node: _node(node) for node in state.nodes.values()},
            "hand_overs": {gid: hand_over.target for gid, hand_over in state.hand_overs.items()},
        }

    def _groups(self) -> Iterator[dict[str, object]]:
        for node in self._state.nodes.values():
            forecasts = self._predictions.of_node(node, self._state.now_s)
            for gid in node.queue:
                yield _group(self._state.groups[gid], forecasts.get(gid))
        for group in self._state.groups.values():
            if not group.node:
                yield _group(group, None)


def _group(group: Group, forecast: GroupForecast | None) -> dict[str, object]:
    shown: dict[str, object] = {
        "group": group.gid,
        "model": group.model,
        "slo": group.slo_kind,
        "tenant": group.tenant,
        "node": group.node,
        "num_waiting": group.num_waiting,
        "num_running": group.num_running,
    }
    if group.kv_at:
        shown["kv_at"] = group.kv_at
    if forecast is not None:
        shown["wait_s"] = round(forecast.start.mean_s, 3)
    return shown


def _node(node: Node) -> dict[str, object]:
    return {
        "model": node.model,
        "num_groups": len(node.queue),
        "drain_s": round(node.drain_s, 3),
        "yielding": node.told_yielding,
        **({"phases": node.phases} if node.known.follows_load else {}),
    }
