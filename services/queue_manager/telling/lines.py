"""Lines of the queue as gateways are told them: of a model and a kind of promise, and of each tenant in such a kind.

A line says how many wait and run, which is counted each time, and how long one that comes now can be expected to wait.
That is a prediction over all groups of some nodes, milliseconds of it where there are a thousand. So at most
`MAX_PREDICTED` lines have a new one each time, those whose is oldest, and half of the turns are for lines of all where
these want them: what is told costs the same however many tenants there are, and come and go. A tenant's line begins
with its kind's wait; a kind without one goes first, and is left out until then, for nothing is known of it.
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
from shared.messages.requests import DEFAULT_TENANT, QueueLine, Submit, TenantLine

MAX_LINES = 128  # models and kinds of promise in a message; the first groups' come first
MAX_TENANT_LINES = 256  # the same by tenant
MAX_PREDICTED = 8  # lines whose wait is predicted anew for a message

LineKey = tuple[str, str, str]
"""Tenant, model and kind of promise; no tenant for a line of all."""


class Lines:
    """Owns `StatusState.waits`."""

    def __init__(self, state: State, predictions: Predictions) -> None:
        self._state = state
        self._predictions = predictions

    def look(self, elsewhere: Elsewhere, now: float) -> tuple[list[QueueLine], list[TenantLine]]:
        """All lines; one walk over the groups.

        Of tenants none where there is only the default tenant. Policies that do not tell tenants apart have them in one
        group, and there only the default tenant counts as told apart.
        """
        kinds: dict[LineKey, list[Group]] = {}
        tenants: dict[LineKey, list[Group]] = {}
        for group in self._state.groups.values():
            kinds.setdefault(("", group.model, group.slo_kind), []).append(group)
            tenants.setdefault((group.tenant or DEFAULT_TENANT, group.model, group.slo_kind), []).append(group)
        kinds = dict(islice(kinds.items(), MAX_LINES))
        has_tenants = any(tenant != DEFAULT_TENANT for tenant, _, _ in tenants)
        tenants = dict(islice(tenants.items(), MAX_TENANT_LINES)) if has_tenants else {}
        sharing = Counter(key[1:] for key in tenants)
        own = {key: all_ for key, all_ in tenants.items() if sharing[key[1:]] > 1 or ("", *key[1:]) not in kinds}
        self._predict(kinds, own, elsewhere, now)
        lines = [self._line(groups, (key,)) for key, groups in kinds.items()]
        tenant_lines = [(key[0], self._line(groups, (key, ("", *key[1:])))) for key, groups in tenants.items()]
        return (
            [line for line in lines if line is not None],
            [TenantLine(tenant, line) for tenant, line in tenant_lines if line is not None],
        )

    def _predict(
        self,
        kinds: dict[LineKey, list[Group]],
        own: dict[LineKey, list[Group]],
        elsewhere: Elsewhere,
        now: float,
    ) -> None:
        """Anew for some of these, and forget lines that are no more."""
        groups_of = {**kinds, **own}
        waits = {key: wait for key, wait in self._state.status.waits.items() if key in groups_of}

        def oldest(keys: Iterable[LineKey]) -> list[LineKey]:
            return sorted(keys, key=lambda key: waits[key].predicted_at_s if key in waits else -inf)

        turns = oldest(kinds)[: MAX_PREDICTED - min(len(own), MAX_PREDICTED // 2)]
        for key in (*turns, *oldest(own)[: MAX_PREDICTED - len(turns)]):
            last = groups_of[key][-1]
            prospect = self._predictions.of_newcomer(self._another(last), now)
            wait = elsewhere.newcomer(last, prospect.first_token) if prospect is not None else None
            waits[key] = ToldWait(inf, inf, now) if wait is None else ToldWait(wait.mean_s, wait.quantile(UPPER), now)
        for key in own.keys() - waits.keys():
            if (of_all := waits.get(("", *key[1:]))) is not None:
                waits[key] = msgspec.structs.replace(of_all, predicted_at_s=now)
        self._state.status.waits = waits

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
