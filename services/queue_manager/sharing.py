"""Equal names and promises of requests are one object: of 400,000 requests each would otherwise hold its own copy.

Only identity changes, nothing that a decision could see.
"""

from __future__ import annotations

import sys

from services.queue_manager.state import Request, State
from shared.requests import Submit
from shared.slo import Slo

MAX_SLOS = 256  # different promises that are shared; clients who give numbers may make any number of them


class Sharing:
    """Makes requests out of shared parts."""

    def __init__(self) -> None:
        self._slos: dict[Slo, Slo] = {}

    def request(self, message: Submit, now: float) -> Request:
        """A request that has just been accepted."""
        return Request(
            request_id=message.request_id,
            gateway=sys.intern(message.gateway),
            model=sys.intern(message.model),
            slo=self._slo(message.slo),
            tenant=sys.intern(message.tenant),
            prompt_tokens=message.prompt_tokens,
            max_tokens=message.max_tokens,
            arrival_s=now,
            attempt=message.attempt,
        )

    def restore(self, state: State) -> None:
        """Decoding has made a copy of everything: share again. O(requests), once at the start of a term."""
        names = {request.request_id: request.request_id for request in state.requests.values()}
        gids = {group.gid: group.gid for group in state.groups.values()} | {"": ""}
        state.requests = {names[name]: request for name, request in state.requests.items()}
        for request in state.requests.values():
            request.gateway, request.model = sys.intern(request.gateway), sys.intern(request.model)
            request.tenant, request.node = sys.intern(request.tenant), sys.intern(request.node)
            request.slo, request.group = self._slo(request.slo), gids[request.group]
        for group in state.groups.values():
            group.waiting = {names[name]: None for name in group.waiting}
            group.running = {names[name]: None for name in group.running}

    def _slo(self, slo: Slo) -> Slo:
        if len(self._slos) >= MAX_SLOS:
            self._slos.clear()
        return self._slos.setdefault(slo, slo)
