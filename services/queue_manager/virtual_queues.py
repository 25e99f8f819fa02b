"""Virtual queues (QLM, SoCC'24 §4): an ordered list of groups a node. The scheduler orders them."""

from __future__ import annotations

from services.queue_manager.state import Group, Node, State
from shared.messages import GroupRef

WINDOW_GROUPS = 4  # how far a node sees ahead; bounds the message and is enough to fill a step from several groups


class VirtualQueues:
    """Owns `State.nodes[*].queue` and `Group.node`: every group stands in one queue, or in none while unplaced."""

    def __init__(self, state: State) -> None:
        self._state = state

    def append(self, group: Group) -> Node | None:
        """Put a new group at the tail of the least loaded node that holds its model; None if no node does."""
        holders = [node for node in self._state.nodes.values() if node.model == group.model]
        if not holders:
            return None
        node = min(holders, key=lambda holder: (self._num_requests(holder), holder.node))
        self._enter(group, node)
        return node

    def remove(self, group: Group) -> Node | None:
        """Take a group out of its queue; answers the node it stood at, if any."""
        if not group.node:
            return None
        node = self._state.nodes[group.node]
        node.queue.remove(group.gid)
        group.node = ""
        return node

    def unplaced(self) -> list[Group]:
        """Groups that stand in no queue."""
        return [group for group in self._state.groups.values() if not group.node]

    def apply(self, queues: dict[str, list[str]]) -> None:
        """Take over a plan, repaired for what happened since: gone groups and nodes are left out.

        A group of which a member runs stays at its node. A group that the plan does not know keeps its place behind
        the planned ones.
        """
        started = {gid for gid, group in self._state.groups.items() if group.running}
        for name, planned in queues.items():
            node = self._state.nodes.get(name)
            if node is None:
                continue
            for gid in planned:
                group = self._state.groups.get(gid)
                if group is not None and (gid not in started or group.node in ("", name)):
                    self.remove(group)
                    self._enter(group, node)
            known = set(planned)
            late = [gid for gid in node.queue if gid not in known]
            node.queue = [gid for gid in node.queue if gid in known] + late

    def window(self, node: Node) -> list[GroupRef]:
        """The first groups of a queue in which somebody waits: what the node is told."""
        head: list[GroupRef] = []
        for gid in node.queue:
            group = self._state.groups[gid]
            if group.num_waiting:
                head.append(GroupRef(gid, group.model, group.num_waiting))
                if len(head) == WINDOW_GROUPS:
                    break
        return head

    def _enter(self, group: Group, node: Node) -> None:
        node.queue.append(group.gid)
        group.node = node.node

    def _num_requests(self, node: Node) -> int:
        return sum(self._state.groups[gid].num_members for gid in node.queue)
