"""Telling nodes what to pull: the head of each virtual queue, when it is not what the node was last told."""

from __future__ import annotations

import math
from collections.abc import Iterable

from services.queue_manager.plans.planning import Planning
from services.queue_manager.queues.batch_limit import BatchLimits
from services.queue_manager.queues.node_phases import read_ahead
from services.queue_manager.queues.tenant_shares import TenantShares
from services.queue_manager.state.journal import Journal
from services.queue_manager.state.node import Node, Told
from services.queue_manager.state.state import State
from services.queue_manager.telling.giving_way import first_hurry, yielding
from services.queue_manager.telling.window import hopeless, window
from shared.bus import streams
from shared.messages.requests.requests import GroupRef, VirtualQueue
from shared.service.core import Effect, Send


class NodeNotices:
    """Owns `Node.told`, `Node.hurried`, `State.waiting_at`. However much changes in one message, a node is told once.

    Without ``batch_limits`` every group is pulled from as long as its requests fit. ``may_evict``: others give way to a
    group in a hurry. ``reads_ahead``: KV may be read while prompts are computed.
    """

    def __init__(
        self,
        state: State,
        planning: Planning,
        shares: TenantShares,
        batch_limits: BatchLimits | None,
        *,
        may_evict: bool,
        reads_ahead: bool,
    ) -> None:
        self._state = state
        self._planning = planning
        self._shares = shares
        self._batch_limits = batch_limits
        self._may_evict = may_evict
        self._reads_ahead = reads_ahead
        self._hurries_at_s = self._first_hurry_s()

    @property
    def wake_at(self) -> float | None:
        """When a group that waits will be in a hurry."""
        return None if math.isinf(self._hurries_at_s) else self._hurries_at_s

    def _first_hurry_s(self) -> float:
        waiting = (self._state.nodes[name] for name in self._state.waiting_at)
        return min((node.hurries_at_s for node in waiting), default=math.inf)

    def tell(self, journal: Journal, now: float) -> list[Effect]:
        """Tell the nodes whose queues have changed, where there is news."""
        for node in self._known(journal.retold):
            self._forget(node)
        for node in self._known(journal.pulled):
            self._note_pull(node)
        for name in journal.queues.keys() - self._state.nodes.keys():
            self._state.waiting_at.pop(name, None)
        if now >= self._hurries_at_s:
            journal.note_queues(name for name in self._state.waiting_at if self._state.nodes[name].hurries_at_s <= now)
        effects: list[Effect] = []
        has_dry = has_idle = False
        for node in self._known(journal.queues | journal.retold):
            had_told = bool(node.told)
            effects += self._tell(node, now)
            if self._state.waiting_at:  # at other nodes, as far as those were told
                has_dry |= had_told and not node.told
                has_idle |= not node.queue
        if journal.queues or journal.retold:
            self._hurries_at_s = self._first_hurry_s()
        self._planning.hear_idle(has_dry=has_dry, has_idle=has_idle)
        return effects

    def _known(self, names: Iterable[str]) -> list[Node]:
        return [self._state.nodes[name] for name in names if name in self._state.nodes]

    def _tell(self, node: Node, now: float) -> list[Effect]:
        first = self._batch_limits.look(node, now) if self._batch_limits is not None else None
        self._shares.look(node, now)
        head = window(self._state, node, first)
        if self._look_for_hurry(node, head, now):
            head = window(self._state, node, first)
        giving_way = yielding(self._state, node, head)
        given_up = hopeless(self._state, node, head)
        short = _short(head)
        decoded = node.known.hands_over
        ahead = read_ahead(self._state, decoded) if self._reads_ahead and decoded else []
        told = (node.told, node.told_yielding, node.told_hopeless, node.told_awaits, node.told_decoded, node.told_ahead)
        if (short, giving_way, given_up, node.awaits, decoded, ahead) == told:
            return []
        self._remember(node, short)
        node.told_yielding, node.told_hopeless, node.told_awaits = giving_way, given_up, node.awaits
        node.told_decoded, node.told_ahead = decoded, ahead
        message = VirtualQueue(
            node=node.node,
            epoch=node.epoch,
            groups=head,
            yielding=giving_way,
            hopeless=given_up,
            awaits=node.awaits,
            decoded_elsewhere=decoded,
            read_ahead=ahead,
        )
        return [Send(streams.node_inbox(node.node), message, max_entries=streams.MAX_NODE_INBOX)]

    def _look_for_hurry(self, node: Node, head: list[GroupRef], now: float) -> bool:
        """Whether another group is in a hurry than before: then the window is another one."""
        before = node.hurried
        at_s, gid = first_hurry(self._state, node, head) if self._may_evict else (math.inf, "")
        is_hurried = at_s <= now
        node.hurried, node.hurries_at_s = (gid, math.inf) if is_hurried else ("", at_s)
        return node.hurried != before

    def _note_pull(self, node: Node) -> None:
        """The node has pulled: if only counts differ, it knows that itself and need not be told."""
        head = _short(window(self._state, node))
        if [(gid, bound) for gid, _, bound in head] == [(gid, bound) for gid, _, bound in node.told]:
            self._remember(node, head)

    def _forget(self, node: Node) -> None:
        """Tell a node anew, whatever it was told before: it may have missed that."""
        self._remember(node, [])
        node.told_yielding = []
        node.told_hopeless = []
        node.told_awaits = ""
        node.told_decoded = node.told_ahead = []

    def _remember(self, node: Node, head: list[Told]) -> None:
        node.told = head
        if head:
            self._state.waiting_at[node.node] = None
        else:
            self._state.waiting_at.pop(node.node, None)


def _short(head: list[GroupRef]) -> list[Told]:
    """What is remembered of a window."""
    return [(ref.group, ref.num_waiting, ref.max_running) for ref in head]
