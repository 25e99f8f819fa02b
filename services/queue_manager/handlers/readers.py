"""Nodes that read a request's KV while its prompt is computed elsewhere, and so have most of it when it is theirs.

Who will go on with a request is chosen behind its prompt; who is likely to, can be told as soon as there is something
to read. It is a hint: the request goes there if it can begin there, and else where it would have gone, whose node reads
the same image from its beginning.
"""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.handlers.requests import Requests
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.state import State
from shared.bus import streams
from shared.estimator.batching import takes_kv
from shared.messages.requests.requests import HANDED_OVER, EvictedRequest, KvOpened, ReadAhead
from shared.service.core import Effect, Send


class Readers:
    """Owns `Request.reader`, but for its end."""

    def __init__(self, state: State, groups: RequestGroups, queues: VirtualQueues, requests: Requests) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._requests = requests

    def opened(self, message: KvOpened) -> list[Effect]:
        """Something of a prompt can be read: tell the node where the request would go on now."""
        giver, request = self._state.nodes.get(message.node), self._requests.current(message.request)
        if giver is None or giver.epoch != message.epoch or request is None or request.node != giver.node:
            return []
        done = EvictedRequest(
            request.request_id, request.attempt, request.done_tokens + 1, request.prompt_tokens, HANDED_OVER
        )
        seat = self._queues.seat_of(self._groups.resumed(request, done), request.slo)
        if seat is None or not seat.known.reads_ahead or not takes_kv(giver.known, seat.known, request.model):
            return []
        request.reader = seat.node
        told = ReadAhead(node=seat.node, epoch=seat.epoch, request=message.request, image=message.image)
        return [Send(streams.node_inbox(seat.node), told, max_entries=streams.MAX_NODE_INBOX)]
