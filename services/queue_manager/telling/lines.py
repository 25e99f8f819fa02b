"""Lines of the queue as gateways are told them: of a model and a kind of promise, and of each tenant in such a kind.

A line says how many wait and run, which is counted each time, and how long one that comes now can be expected to wait.
That is a prediction over all groups of some nodes, milliseconds of it where there are a thousand. So at most
`MAX_PREDICTED` lines have a new one each time, those whose is oldest, and half of the turns are for lines of all where
these want them: what is told costs the same however many tenants there are, and come and go. A tenant's line begins
with its kind's wait; a kind without one goes first, and is left out until then, for nothing is known of it.

Where there are many groups a tick predicts one line: gateways are told when all are done whose turn it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from math import inf

import msgspec

from services.queue_manager.learnt.wait_intervals import UPPER
from services.queue_manager.state.group import Group
from services.queue_manager.state.state import State, ToldWait
from services.queue_manager.waits.elsewhere import Elsewhere
from services.queue_manager.waits.predictions import Predictions
from shared.messages.requests.requests import DEFAULT_TENANT, QueueLine, Submit, TenantLine

MAX_LINES = 128  # models and kinds of promise in a message; the first groups' come first
MAX_TENANT_LINES = 256  # the same by tenant
MAX_PREDICTED = 8  # lines whose wait is predicted anew for a message
MANY_GROUPS = 256  # from so many on, a tick predicts one of them

LineKey = tuple[str, str, str]
"""Tenant, model and kind of promise; no tenant for a line of all."""

_GroupsOf = dict[LineKey, list[Group]]


class Lines:
    """Owns `StatusState.waits`."""

    def __init__(self, state: State, predictions: Predictions) -> None:
        self._state = state
        self._predictions = predictions

    def look(self, elsewhere: Elsewhere, now: float) -> tuple[list[QueueLine], list[TenantLine]]:
        """All lines, whatever it costs."""
        self.begin()
        while self._state.status.turns:
            self.predict(elsewhere, now)
        return self.told(now)

    def begin(self) -> None:
        """Choose the lines whose turn it is."""
        kinds, tenants = self._groups_of()
        own, waits = _own(kinds, tenants), self._state.status.waits

        def oldest(keys: Iterable[LineKey]) -> list[LineKey]:
            return sorted(keys, key=lambda key: waits[key].predicted_at_s if key in waits else -inf)

        turns = oldest(kinds)[: MAX_PREDICTED - min(len(own), MAX_PREDICTED // 2)]
        turns += oldest(own)[: MAX_PREDICTED - len(turns)]
        self._state.status.turns = {key: (own if key[0] else kinds)[key][-1].gid for key in turns}

    def predict(self, elsewhere: Elsewhere, now: float) -> None:
        """Anew for the next of these; for all of them where that is soon done. A group may have ended meanwhile."""
        status, groups = self._state.status, self._state.groups
        for key, gid in list(status.turns.items())[: 1 if self.has_many else None]:
            del status.turns[key]
            if (last := groups.get(gid)) is None:
                continue
            prospect = self._predictions.of_newcomer(self._another(last), now)
            wait = elsewhere.newcomer(last, prospect.first_token) if prospect is not None else None
            found = ToldWait(inf, inf, now) if wait is None else ToldWait(wait.mean_s, wait.quantile(UPPER), now)
            status.waits[key] = found

    @property
    def has_many(self) -> bool:
        """There are so many groups that a tick predicts one line."""
        return len(self._state.groups) >= MANY_GROUPS

    def told(self, now: float) -> tuple[list[QueueLine], list[TenantLine]]:
        """All lines, with what was predicted; one walk over the groups. Lines that are no more are forgotten.

        Of tenants none where there is only the default tenant. Policies that do not tell tenants apart have them in one
        group, and there only the default tenant counts as told apart.
        """
        kinds, tenants = self._groups_of()
        own, status = _own(kinds, tenants), self._state.status
        waits = {key: wait for key, wait in status.waits.items() if key in kinds or key in own}
        for key in own.keys() - waits.keys():
            if (of_all := waits.get(("", *key[1:]))) is not None:
                waits[key] = msgspec.structs.replace(of_all, predicted_at_s=now)
        status.waits = waits
        lines = [self._line(groups, (key,)) for key, groups in kinds.items()]
        tenant_lines = [(key[0], self._line(groups, (key, ("", *key[1:])))) for key, groups in tenants.items()]
        return (
            [line for line in lines if line is not None],
            [TenantLine(tenant, line) for tenant, line in tenant_lines if line is not None],
        )

    def _groups_of(self) -> tuple[_GroupsOf, _GroupsOf]:
        """By line: of all, and of tenants."""
        kinds: _GroupsOf = {}
        tenants: _GroupsOf = {}
        for group in self._state.groups.values():
            kinds.setdefault(("", group.model, group.slo_kind), []).append(group)
            tenants.setdefault((group.tenant or DEFAULT_TENANT, group.model, group.slo_kind), []).append(group)
        has_tenants = any(tenant != DEFAULT_TENANT for tenant, _, _ in tenants)
        return (
            dict(islice(kinds.items(), MAX_LINES)),
            dict(islice(tenants.items(), MAX_TENANT_LINES)) if has_tenants else {},
        )

    def _line(self, groups: list[Group], keys: Iterable[LineKey]) -> QueueLine | None:
        """With the wait of the first of these that has one."""
        waits = self._state.status.waits
        wait = next((waits[key] for key in keys if key in waits), None)
        if wait is None:
            return None
        return QueueLine(
            model=groups[-1].model,
            slo=groups[-1].slo_kind,
            num_waiting=sum(group.num_waiting for group in groups),
            num_running=sum(group.num_running for group in groups),
            wait_s=wait.mean_s,
            wait_p90_s=wait.p90_s,
        )

    def _another(self, group: Group) -> Submit:
        """A request like the last one of a group."""
        last = self._state.requests[next(reversed(group.waiting or group.running))]
        return Submit(
            request_id="",
            gateway="",
            model=last.model,
            slo=last.slo,
            tenant=last.tenant,
            prompt_tokens=last.prompt_tokens,
            max_tokens=last.max_tokens,
        )


def _own(kinds: _GroupsOf, tenants: _GroupsOf) -> _GroupsOf:
    """Of lines of tenants, those with a wait of their own: who is alone in a kind that is told has the kind's."""
    sharing = Counter(key[1:] for key in tenants)
    return {key: groups for key, groups in tenants.items() if sharing[key[1:]] > 1 or ("", *key[1:]) not in kinds}
