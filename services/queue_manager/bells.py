"""Telling nodes what to pull: the head of each virtual queue, when it is not what the node was last told."""

from __future__ import annotations

from services.queue_manager.state import Node, State
from services.queue_manager.virtual_queues import VirtualQueues
from shared import streams
from shared.core import Effect, Send
from shared.messages import VirtualQueue


class Bells:
    """Owns `Node.told`. However much changes in one message, a node is told once."""

    def __init__(self, state: State, queues: VirtualQueues) -> None:
        self._state = state
        self._queues = queues
        self._changed: dict[str, None] = {}

    def touch(self, *names: str) -> None:
        """The virtual queues of these nodes may have changed; ``""`` stands for no node."""
        self._changed.update(dict.fromkeys(names))

    def ring(self) -> list[Effect]:
        """Tell the nodes that were touched, where there is news."""
        nodes = [self._state.nodes[name] for name in self._changed if name in self._state.nodes]
        self._changed.clear()
        effects: list[Effect] = []
        for node in nodes:
            if (told := self.head(node)) != node.told:
                node.told = told
                message = VirtualQueue(node=node.node, epoch=node.epoch, groups=self._queues.window(node))
                effects.append(Send(streams.node_inbox(node.node), message, max_entries=streams.MAX_NODE_INBOX))
        return effects

    def note_pull(self, node: Node) -> None:
        """The node has pulled: if only counts differ, it knows that itself and need not be told."""
        head = self.head(node)
        if [gid for gid, _ in head] == [gid for gid, _ in node.told]:
            node.told = head

    def head(self, node: Node) -> list[tuple[str, int]]:
        """What there is to tell: (group, number waiting)."""
        return [(ref.group, ref.num_waiting) for ref in self._queues.window(node)]
