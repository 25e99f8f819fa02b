"""Equal names and promises are one object: each of 400,000 requests would otherwise hold its own copy, and each group.

Only identity changes, nothing that a decision could see.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping

from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo

MAX_SLOS = 256  # different promises that are shared; clients that give numbers may make any number of them


class Interning:
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
            max_tokens=message.max_tokens + message.done_tokens,
            arrival_s=now - message.waited_s,
            attempt=message.attempt,
            done_tokens=message.done_tokens,
            needs=sys.intern(message.needs),
        )

    def restore(self, state: State) -> None:
        """Decoding has made a copy of everything: share again. O(requests), once at the start of a term."""
        names = {request.request_id: request.request_id for request in state.requests.values()}
        gids = {group.gid: group.gid for group in state.groups.values()} | {"": ""}
        self._share_requests(state, names, gids)
        _share_groups(state, names, gids)
        for node in state.nodes.values():
            node.queue = [gids[gid] for gid in node.queue]
            node.told = [(gids.get(gid, gid), num_waiting, bound) for gid, num_waiting, bound in node.told]
            node.hurries_at_s = math.inf if math.isinf(node.hurries_at_s) else node.hurries_at_s
            node.rescued_at_s = -math.inf if math.isinf(node.rescued_at_s) else node.rescued_at_s
        for runners in state.running.values():
            runners.members = {names[name]: None for name in runners.members}

    def _share_requests(self, state: State, names: Mapping[str, str], gids: Mapping[str, str]) -> None:
        state.requests = {names[name]: request for name, request in state.requests.items()}
        for request in state.requests.values():
            request.gateway, request.model = sys.intern(request.gateway), sys.intern(request.model)
            request.tenant, request.node = sys.intern(request.tenant), sys.intern(request.node)
            request.needs = sys.intern(request.needs)
            request.begins_s = request.begins_s or 0.0  # one zero for all that have not begun
            request.slo, request.group = self._slo(request.slo), gids[request.group]

    def _slo(self, slo: Slo) -> Slo:
        if len(self._slos) >= MAX_SLOS:
            self._slos.clear()
        return self._slos.setdefault(slo, slo)


def _share_groups(state: State, names: Mapping[str, str], gids: Mapping[str, str]) -> None:
    """Where groups are many, each holds a few requests, and its names count."""
    state.groups = {gids[gid]: group for gid, group in state.groups.items()}
    kinds: dict[RequestKind, RequestKind] = {}
    for group in state.groups.values():
        group.key = _shared(group.key, kinds, gids)
        group.model, group.slo_kind, group.tenant = map(sys.intern, (group.model, group.slo_kind, group.tenant))
        group.node, group.kv_at, group.warm_at = map(sys.intern, (group.node, group.kv_at, group.warm_at))
        group.waiting = {names[name]: None for name in group.waiting}
        group.running = {names[name]: None for name in group.running}
    state.open_groups = {state.groups[gid].key: gids[gid] for gid in state.open_groups.values()}


def _shared(key: GroupKey, kinds: dict[RequestKind, RequestKind], gids: Mapping[str, str]) -> GroupKey:
    kind = RequestKind(*map(sys.intern, key.kind))
    return key._replace(
        kind=kinds.setdefault(kind, kind),
        tenant=sys.intern(key.tenant),
        place=sys.intern(key.place),
        root=gids.get(key.root, key.root),
        warm_at=sys.intern(key.warm_at),
        needs=sys.intern(key.needs),
    )
