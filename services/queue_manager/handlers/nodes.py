"""Nodes come, change and go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.handlers.load_phases import LoadPhases
from services.queue_manager.handlers.requests import Requests
from services.queue_manager.queues.node_phases import note_hand_overs
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.estimator.rates import share_rates
from shared.messages.nodes.nodes import NodeDown, NodeUp
from shared.service.core import Effect


class Nodes:
    """Owns `State.nodes` as such; what stands in them is the virtual queues'."""

    def __init__(
        self, state: State, groups: RequestGroups, queues: VirtualQueues, requests: Requests, phases: LoadPhases
    ) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._journal = groups.journal
        self._requests = requests
        self._phases = phases

    def up(self, message: NodeUp, now: float) -> list[Effect]:
        """A node serves, or is known better. A new one, or other models that it has or cannot have, call for a plan."""
        effects: list[Effect] = []
        known = message.known
        node = self._state.nodes.get(known.node)
        if node is not None and node.epoch != message.epoch:
            effects += self._lose(node, now)
            node = None
        has_turned = node is not None and node.known.phases != known.phases
        is_swapped = node is None or node.model != known.model
        is_other = is_swapped or (node is not None and node.known.broken_models != known.broken_models)
        if node is None:
            node = Node(node=known.node, epoch=message.epoch, known=known)
            self._state.nodes[node.node] = node
        if is_swapped and known.model:
            self._state.last_holders[known.model] = node.node
        node.known, node.own_rates = known, known.rates
        if node.awaits in (known.model, *known.broken_models):
            self._queues.await_model(node, "")
        self._share_rates(node, now)
        self.note_hand_overs(now)
        self._groups.learn_nodes(other.known for other in self._state.nodes.values())
        if has_turned:
            effects += self._phases.leave(node, now)
        if is_other or has_turned:
            self._place_all(now)
            self._journal.call_plan()
            self._journal.note_queues(self._state.nodes)  # what no node can load may be another model now
        self._journal.retold[node.node] = None
        return effects

    def note_hand_overs(self, now: float) -> None:
        """Nodes have changed: whose requests leave it, or do not any more, is told so, and weighed anew."""
        for node in note_hand_overs(self._state):
            self._queues.weigh_all(node, now)
            self._journal.note_queue(node.node)

    def _share_rates(self, told: Node, now: float) -> None:
        """What a node has not measured is known from others, as for a plan; a node known better is weighed anew.

        A model that no node has run yet is known of none: what is predicted of it does not count as learnt.
        """
        nodes = list(self._state.nodes.values())
        own = [msgspec.structs.replace(node.known, rates=node.own_rates) for node in nodes]
        measured = list(dict.fromkeys(rate.model for node in nodes for rate in node.own_rates))
        for node, known in zip(nodes, share_rates(own, measured), strict=True):
            is_other = known.rates != node.known.rates
            node.known = known
            if is_other or node is told:
                self._queues.weigh_all(node, now)

    def down(self, message: NodeDown, now: float) -> list[Effect]:
        """A node's epoch is over."""
        node = self._state.nodes.get(message.node)
        if node is None or node.epoch != message.epoch:
            return []
        lost = self._on(node)
        suspects = self._suspects(lost, message) if message.has_crashed else []
        return self._lose(node, now, suspects)

    def _suspects(self, lost: list[Request], message: NodeDown) -> list[Request]:
        """Requests of which one may be why the engine died: what it ran, unless it knew better."""
        blamed = {attempt.request_id: attempt.attempt for attempt in message.blamed}
        running = [request for request in lost if request.node]
        return [one for one in running if not blamed or blamed.get(one.request_id) == one.attempt]

    def _lose(self, node: Node, now: float, suspects: Sequence[Request] = ()) -> list[Effect]:
        """What the node ran or kept goes back to the gateways, which know what the client has; the rest moves on."""
        crashed = {request.request_id for request in suspects}
        lost = [request for request in self._on(node) if request.request_id not in crashed]
        for gid in list(node.queue):
            self._queues.remove(self._state.groups[gid])
        del self._state.nodes[node.node]
        self._journal.note_queue(node.node)
        self.note_hand_overs(now)
        self._journal.note_queues(self._state.nodes)
        effects = self._requests.resubmit(list(suspects), has_crashed=True)
        effects += self._requests.resubmit(lost)
        self._place_all(now)
        self._journal.call_plan()
        return effects

    def _on(self, node: Node) -> list[Request]:
        """What runs at the node, or is kept there."""
        return [request for group in self._state.groups.values() for request in self._at(group, node)]

    def _at(self, group: Group, node: Node) -> list[Request]:
        """Members of a group that run at the node, or whose KV is kept there."""
        members = [*group.running, *(group.waiting if group.kv_at == node.node else ())]
        requests = (self._state.requests[member] for member in members)
        return [request for request in requests if (request.node or group.kv_at) == node.node]

    def _place_all(self, now: float) -> None:
        for group in self._queues.unplaced():
            self._queues.place(group, now)
