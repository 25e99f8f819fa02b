"""Requests that were taken out of an engine before their end: put back with their KV, or handed over to another node.

The agent evicts where a plan has a running group give way (`VirtualQueue.yielding`); the queue manager asks for a
hand-over where a plan wants a group elsewhere whose KV is at a node (QLM, SoCC'24 §5: request eviction, load balancing;
the KV that moves along is ours). No node pulls from a group between the question and the answer, so that no request is
in two places. What is lost on the way is computed again, as after the death of a node.
"""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.handlers.requests import Requests, abort
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.plan_state import HandOver
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.bus import streams
from shared.estimator.hand_over import hand_over_cost
from shared.messages.requests.requests import HANDED_OVER, Attempt, Evict, Evicted, EvictedRequest
from shared.service.core import Effect, Send

MAX_HAND_OVERS = 16  # groups on their way at a time: no node pulls from them meanwhile
HAND_OVER_TIMEOUT_S = 30.0  # a hand-over that takes longer is forgotten, and the group served where it is


class Evictions:
    """Owns `State.hand_overs`."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues, requests: Requests) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._journal = groups.journal
        self._requests = requests

    @property
    def wake_at(self) -> float | None:
        """When a hand-over is to be forgotten."""
        asked = [hand_over.asked_at_s for hand_over in self._state.hand_overs.values()]
        return min(asked) + HAND_OVER_TIMEOUT_S if asked else None

    # --- what a node gives back -----------------------------------------------------------------------------------

    def evicted(self, message: Evicted, now: float) -> list[Effect]:
        """Put back what a node has given back. What was given up meanwhile is dropped there."""
        node = self._state.nodes.get(message.node)
        if node is not None and node.epoch != message.epoch:
            node = None
        if node is not None and message.number:
            if message.number <= node.num_heard:
                return []  # told twice
            node.num_heard = message.number
        effects: list[Effect] = []
        lost: dict[str, Request] = {}
        unpulled: dict[str, Request] = {}
        unwanted: list[Attempt] = []
        for evicted in message.requests:
            request = self._requests.current(Attempt(evicted.request_id, evicted.attempt))
            if request is None or node is None or not self._is_at(request, node):
                unwanted.append(Attempt(evicted.request_id, evicted.attempt))
                if request is not None and self._waits_unpulled(request):
                    unpulled[request.request_id] = request
            elif evicted.kv_tokens == 0:
                lost[request.request_id] = request
            else:
                effects += self._put_back(request, evicted, node, now)
        effects += self._requests.resubmit(list(lost.values()), gave_way=True)
        effects += self._requests.lose(list(unpulled.values()))
        return [*effects, *abort(node, unwanted)] if node is not None else effects

    def _is_at(self, request: Request, node: Node) -> bool:
        """Whether the node runs the request, or keeps its KV."""
        if not request.group:
            return False
        return (request.node or self._state.groups[request.group].kv_at) == node.node

    def _waits_unpulled(self, request: Request) -> bool:
        """Whether a node gives back what none has taken: Redis has lost the pull.

        The entry that a node could pull it by went with the acknowledgement.
        """
        return bool(request.group) and not request.node

    def _put_back(self, request: Request, evicted: EvictedRequest, node: Node, now: float) -> list[Effect]:
        """Have the request wait again, with its KV where the node says."""
        self._groups.learn_drawn(request, evicted.output_tokens)
        seat = self._seat(request, evicted, node)  # before it leaves: then its group may be empty
        request.reader = ""
        origin = self._groups.leave(request)
        group = self._groups.put_back(request, origin, evicted, seat.node if seat else "")
        if group.node:
            self._queues.weigh(group, now)
        elif seat is not None:
            self._queues.enter_seat(group, seat, now)
        else:
            self._place(group, origin, node, now)
        return [self._requests.enqueue(request), *self._requests.close_if_empty(origin)]

    def _seat(self, request: Request, evicted: EvictedRequest, node: Node) -> Node | None:
        """Where one goes on at once whose prompt was computed at a node that only does that; None where it waits.

        What a plan moves goes where the plan has it. Who has read its KV already takes it, where it can begin there.
        """
        if node.known.serves("decode") or evicted.kv_at != HANDED_OVER or request.group in self._state.hand_overs:
            return None
        load, seat = self._groups.resumed(request, evicted), None
        if request.reader:
            seat = self._queues.seat_of(load, request.slo, only=request.reader)
        return seat or self._queues.seat_of(load, request.slo)

    def _place(self, group: Group, origin: Group, node: Node, now: float) -> None:
        """Where a group of evicted requests goes: before the rest of its old group, for its members came earlier."""
        hand_over = self._state.hand_overs.get(origin.gid)
        if group.kv_at == HANDED_OVER:
            target = self._state.nodes.get(hand_over.target) if hand_over is not None else None
            if target is not None:
                self._queues.enter(group, target, now)
            else:
                self._queues.place_new(group, now)
            return
        if origin.node == node.node:
            self._queues.enter_before(group, origin, now)
        else:
            self._queues.enter_behind_head(group, node, now)
        if hand_over is not None:  # it gave way just before it was asked: the question stands
            self._state.hand_overs[group.gid] = hand_over

    # --- what the queue manager asks for --------------------------------------------------------------------------

    def hand_over(self, targets: dict[str, str], now: float) -> list[Effect]:
        """Ask for the KV of groups that a plan wants at other nodes. Those beyond the bound wait for the next plan."""
        effects: list[Effect] = []
        for gid, target in targets.items():
            known = self._state.hand_overs.get(gid)
            if known is not None:
                self._state.hand_overs[gid] = HandOver(target, known.asked_at_s)
            elif len(self._state.hand_overs) < MAX_HAND_OVERS:
                group = self._state.groups[gid]
                self._state.hand_overs[gid] = HandOver(target, now)
                self._journal.note_queue(group.node)
                effects += self._ask(group, self._state.nodes.get(target), now)
        return effects

    def _ask(self, group: Group, target: Node | None, now: float) -> list[Effect]:
        attempts: dict[str, list[Attempt]] = {}
        for member in group.members:
            request = self._state.requests[member]
            if (place := request.node or group.kv_at) in self._state.nodes:
                attempts.setdefault(place, []).append(Attempt(member, request.attempt))
        nodes = [self._state.nodes[name] for name in attempts]
        kv_tokens = self._groups.load(group, now).kv_tokens
        return [
            Send(
                streams.node_inbox(node.node),
                Evict(
                    node=node.node,
                    epoch=node.epoch,
                    requests=attempts[node.node],
                    drops_kv=target is not None and not self._moves_kv(group, node, target, kv_tokens),
                ),
                max_entries=streams.MAX_NODE_INBOX,
            )
            for node in nodes
        ]

    def _moves_kv(self, group: Group, node: Node, target: Node, kv_tokens: float) -> bool:
        """Whether its KV is sooner there than computed again."""
        return hand_over_cost(node.known, target.known, group.model, kv_tokens, group.num_members).moves_kv

    def settle(self, now: float) -> None:
        """Move groups whose KV is out; forget questions that were not answered in time."""
        for gid, hand_over in list(self._state.hand_overs.items()):
            group = self._state.groups[gid]
            is_over = now >= hand_over.asked_at_s + HAND_OVER_TIMEOUT_S
            if self._queues.holds_kv(group) and not is_over:
                continue
            del self._state.hand_overs[gid]
            self._journal.note_queue(group.node)
            target = self._state.nodes.get(hand_over.target)
            if target is not None and not is_over:
                self._queues.remove(group)
                self._queues.enter(group, target, now)
