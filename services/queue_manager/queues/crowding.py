"""Who leaves a batch in which too many run: requests with an hour to go, beside others that have a minute.

A request with slack begins where that does no harm (`immediate_start`, `batch_limit`). But it stays for as long as its
answer takes, and urgent ones that come meanwhile begin beside it: then all of them are slow. So where `NUM_TIMES` the
share of promises are late by the batch for which a request with slack would not have begun, it gives its place back and
waits, with its KV (request eviction, QLM, SoCC'24 §5), until the batch has room again. That is an exchange of one batch
for a smaller one, a clump of requests at a time: a request that came and one that left in turn would move KV all the
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.node_counts import PATIENCE_S, promises
from services.queue_manager.state.state import Group, Node, Request, State
from shared.estimator.batching import batching
from shared.estimator.harm import MAX_LATE, harmless_batch, late_by_batch

NUM_TIMES = 2.0
INTERVAL_S = 1.0  # the node has to answer, and the batch to become faster


class Crowding:
    """Owns `Node.made_room_at_s`."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def leaving(self, names: Iterable[str], now: float) -> dict[str, list[Request]]:
        """By node of these, requests that run there and are to wait instead. O(groups at the node), once a second."""
        found = {}
        for name in names:
            node = self._state.nodes.get(name)
            if node is None or now < node.made_room_at_s + INTERVAL_S:
                continue
            number = self._num_leaving(node, now)
            requests = list(self._with_slack(node, number, now)) if number > 0 else []
            if requests:
                node.made_room_at_s = now
                found[name] = requests
        return found

    def _num_leaving(self, node: Node, now: float) -> int:
        """As many as there are beyond a harmless batch; 0 where it is not crowded."""
        if len(promises(self._state, node).kinds) < 2:
            return 0
        typical = self._groups.typical(node.model, now)
        if typical is None:
            return 0
        work, ends = batching(node.known, typical), list(promises(self._state, node).ends)
        if late_by_batch(work, ends, node.num_running) <= NUM_TIMES * MAX_LATE:
            return 0
        size = harmless_batch(work, ends)
        return 0 if size is None else node.num_running - size

    def _with_slack(self, node: Node, number: int, now: float) -> Iterator[Request]:
        """So many at most: of the group that is due last first, and of a group the request that was pulled last."""
        groups = (self._state.groups[gid] for gid in node.queue)
        able = [group for group in groups if self._may_leave(group, node, now)]
        for group in sorted(able, key=lambda one: (-one.start_by_s, one.gid)):
            for member in reversed(group.running):
                if number <= 0:
                    return
                number -= 1
                yield self._state.requests[member]

    def _may_leave(self, group: Group, node: Node, now: float) -> bool:
        """It has time though all that the node has to do comes first."""
        if not group.running or group.gid in self._state.hand_overs or group.model != node.model:
            return False
        return group.start_by_s - now > PATIENCE_S + node.drain_s
