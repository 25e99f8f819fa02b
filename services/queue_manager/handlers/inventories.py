"""Gateways and nodes say again what they have: what Redis has forgotten, or only Redis remembers, is put right.

Redis may come back without the end of its log, and a gateway's stream may be gone. Its data is then what it was some
time ago, so the books here agree with themselves and not with the world. Whatever cannot be made to agree for certain
is run again as another attempt, with what its client has: that is right whatever was done first (see `Requests.lose`).
"""

from __future__ import annotations

from collections.abc import Iterator

from services.queue_manager.handlers.requests import Requests
from services.queue_manager.state.journal import Journal
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import InventoryDate, State
from shared.bus import streams
from shared.messages.requests.inventories import GatewayInventory, IdRange, NodeInventory
from shared.messages.requests.requests import Abort, Attempt, GatewayBeat, Resubmit
from shared.service.core import Drop, Effect, Send


class Inventories:
    """Owns `State.inventories`."""

    def __init__(self, state: State, journal: Journal, requests: Requests) -> None:
        self._state = state
        self._journal = journal
        self._requests = requests

    # --- gateways -------------------------------------------------------------------------------------------------

    def announced(self, beat: GatewayBeat, now: float) -> None:
        """A gateway makes its list behind this beat: what came before and is not in it is over."""
        self._state.inventories[beat.gateway] = InventoryDate(beat.inventory, now)

    def of_gateway(self, message: GatewayInventory) -> list[Effect]:
        """Ask for what is not known, or waits to be asked for; forget what its gateway has forgotten."""
        again = [attempt for attempt in message.requests if not self._is_known(attempt)]
        effects = [effect for request in self._over(message) for effect in self._forget(request)]
        if again:
            resubmit = Resubmit(requests=again, gave_way=True)
            effects.append(Send(streams.tokens(message.gateway), resubmit, to_existing=True))
        return effects

    def _is_known(self, attempt: Attempt) -> bool:
        """It waits or runs, or a newer attempt of the request has come. Else its gateway may wait for ever."""
        request = self._state.requests.get(attempt.request_id)
        if request is None or request.attempt < attempt.attempt:
            return False
        return bool(request.group) or request.attempt > attempt.attempt

    def _over(self, message: GatewayInventory) -> list[Request]:
        """What the gateway asked for before it made its list, and does not have in it."""
        date = self._state.inventories.get(message.gateway)
        if date is None or date.number != message.number:
            return []
        span = IdRange(message.above, message.upto)
        listed = {attempt.request_id for attempt in message.requests}
        # for each part all requests are walked over: few of them are in its span, and next to none is not listed
        within = [name for name in self._state.requests if span.above < name and (not span.upto or name <= span.upto)]
        unlisted = (self._state.requests[name] for name in within if name not in listed)
        return [
            request
            for request in unlisted
            if request.gateway == message.gateway and request.arrival_s < date.announced_at_s
        ]

    def _forget(self, request: Request) -> list[Effect]:
        return [*self._requests.forget(request), Drop(streams.payload(request.request_id))]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def of_node(self, message: NodeInventory) -> list[Effect]:
        """Have the node stop what it is not believed to have; submit again what it does not have, or no node has."""
        node = self._state.nodes.get(message.node)
        if node is not None and node.epoch != message.epoch:
            node = None
        if node is not None and message.number:
            if message.number < node.num_heard:
                return []  # it comes late: the node has told of more since, and this one again
            node.num_heard = message.number
        span = IdRange(message.above, message.upto)
        believed = {name: request for name, request in self._at(node) if span.holds(name)} if node is not None else {}
        here = dict.fromkeys(message.parked, False) | dict.fromkeys(message.running, True)
        agreed: set[str] = set()
        strays: list[Attempt] = []
        for attempt, runs in here.items():
            request = believed.get(attempt.request_id)
            if request is not None and (request.attempt, bool(request.node)) == (attempt.attempt, runs):
                agreed.add(attempt.request_id)
            else:
                strays.append(attempt)
        lost = {name: request for name, request in believed.items() if name not in agreed}
        stopped = [request for attempt in strays if (request := self._known(attempt, message.node)) is not None]
        given_up = [request for request in stopped if request.request_id not in lost]
        effects: list[Effect] = []
        if strays:
            inbox = streams.node_inbox(message.node)
            effects.append(Send(inbox, Abort(requests=strays), max_entries=streams.MAX_NODE_INBOX))
        if node is not None:
            self._journal.retold[node.node] = None  # what it was told last may be lost as well
        effects += self._requests.resubmit(list(lost.values()), gave_way=True)
        return [*effects, *self._requests.lose(given_up)]

    def _at(self, node: Node) -> Iterator[tuple[str, Request]]:
        """What the node is believed to run, or to keep the KV of."""
        for group in self._state.groups.values():
            members = [*group.running, *(group.waiting if group.kv_at == node.node else ())]
            for name in members:
                request = self._state.requests[name]
                if request.node in ("", node.node):
                    yield name, request

    def _known(self, attempt: Attempt, node: str) -> Request | None:
        """The request, if this attempt waits or is at the node: what stops the one there could stop this one, too."""
        request = self._requests.current(attempt)
        return request if request is not None and request.group and request.node in ("", node) else None
