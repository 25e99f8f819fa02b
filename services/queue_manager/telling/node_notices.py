"""Telling nodes what to pull: the head of each virtual queue, when it is not what the node was last told."""

from __future__ import annotations

from services.queue_manager.plans.planning import Planning
from services.queue_manager.queues.batch_limit import Headroom
from services.queue_manager.queues.tenant_shares import TenantShares
from services.queue_manager.state.state import Node, State, Told
from services.queue_manager.telling.window import hopeless, window, yielding
from shared.bus import streams
from shared.messages.requests import GroupRef, VirtualQueue
from shared.service.core import Effect, Send


class Bells:
    """Owns `Node.told` and `State.waiting_at`. However much changes in one message, a node is told once.

    Without ``headroom`` every group is pulled from as long as its requests fit.
    """

    def __init__(self, state: State, planning: Planning, shares: TenantShares, headroom: Headroom | None) -> None:
        self._state = state
        self._shares = shares
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
            first = self._headroom.look(node, now) if self._headroom is not None else None
            self._shares.look(node, now)
            head = window(self._state, node, first)
            giving_way = yielding(self._state, node, head)
            given_up = hopeless(self._state, node, head)
            is_dry = bool(node.told) and not head
            short = _short(head)
            if (short, giving_way, given_up) != (node.told, node.told_yielding, node.told_hopeless):
                self._remember(node, short)
                node.told_yielding, node.told_hopeless = giving_way, given_up
                message = VirtualQueue(
                    node=node.node, epoch=node.epoch, groups=head, yielding=giving_way, hopeless=given_up
                )
                effects.append(Send(streams.node_inbox(node.node), message, max_entries=streams.MAX_NODE_INBOX))
            if is_dry:
                self._planning.note_dry()
            if not node.queue:
                self._planning.note_idle()
        return effects

    def note_pull(self, node: Node) -> None:
        """The node has pulled: if only counts differ, it knows that itself and need not be told."""
        head = _short(window(self._state, node))
        if [(gid, bound) for gid, _, bound in head] == [(gid, bound) for gid, _, bound in node.told]:
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

    def _remember(self, node: Node, head: list[Told]) -> None:
        node.told = head
        if head:
            self._state.waiting_at[node.node] = None
        else:
            self._state.waiting_at.pop(node.node, None)


def _short(head: list[GroupRef]) -> list[Told]:
    """What is remembered of a window."""
    return [(ref.group, ref.num_waiting, ref.max_running) for ref in head]
