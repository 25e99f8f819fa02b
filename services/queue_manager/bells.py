"""Telling nodes what to pull: the head of each virtual queue, when it is not what the node was last told."""

from __future__ import annotations

from services.queue_manager.headroom import Headroom
from services.queue_manager.planning import Planning
from services.queue_manager.state import Node, State
from services.queue_manager.window import hopeless, window, yielding
from shared import streams
from shared.core import Effect, Send
from shared.messages import GroupRef, VirtualQueue


class Bells:
    """Owns `Node.told` and `State.waiting_at`. However much changes in one message, a node is told once."""

    def __init__(self, state: State, planning: Planning, headroom: Headroom | None) -> None:
        self._state = state
        self._headroom = headroom
        self._planning = planning
        self._changed: dict[str, None] = {}

    def touch(self, *names: str) -> None:
        """The virtual queues of these nodes may have changed; ``""`` stands for no node."""
        self._changed.update(dict.fromkeys(names))

    def ring(self, now: float) -> list[Effect]:
        """Tell the nodes that were touched, where there is news."""
        nodes = [self._state.nodes[name] for name in self._changed if name in self._state.nodes]
        self._changed.clear()
        effects: list[Effect] = []
        for node in nodes:
            bound, patient = self._headroom.look(node, now) if self._headroom is not None else (None, set())
            head = window(self._state, node, bound, patient)
            giving_way = yielding(self._state, node, head)
            given_up = hopeless(self._state, node, head)
            is_dry = bool(node.told) and not head
            bounds = [ref.max_running for ref in head]
            if (_short(head), giving_way, given_up, bounds) != (node.told, node.told_yielding, node.told_hopeless, node.told_bounds):
                self._remember(node, _short(head))
                node.told_bounds = bounds
                node.told_yielding, node.told_hopeless = giving_way, given_up
                message = VirtualQueue(
                    node=node.node, epoch=node.epoch, groups=head, yielding=giving_way, hopeless=given_up
                )
                effects.append(Send(streams.node_inbox(node.node), message, max_entries=streams.MAX_NODE_INBOX))
            if is_dry:
                self._planning.note_dry()
        return effects

    def note_pull(self, node: Node) -> None:
        """The node has pulled: if only counts differ, it knows that itself and need not be told."""
        known = {gid for gid, _ in node.told}
        head = [(gid, self._state.groups[gid].num_waiting) for gid, _ in node.told if gid in self._state.groups and self._state.groups[gid].waiting]
        if len(head) == len(known):
            self._remember(node, head)

    def repeat(self, node: Node) -> None:
        """Tell a node anew, whatever it was told before: it may have missed that."""
        self._remember(node, [])
        node.told_yielding = []
        node.told_hopeless = []
        self.touch(node.node)

    def forget(self, node: Node) -> None:
        """The node is gone."""
        self._remember(node, [])

    def _remember(self, node: Node, head: list[tuple[str, int]]) -> None:
        node.told = head
        if head:
            self._state.waiting_at[node.node] = None
        else:
            self._state.waiting_at.pop(node.node, None)


def _short(head: list[GroupRef]) -> list[tuple[str, int]]:
    """What is remembered of a window: (group, number waiting)."""
    return [(ref.group, ref.num_waiting) for ref in head]
