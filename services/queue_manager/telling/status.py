"""What the gateways, and through them the clients, are told of the queue, and when.

While a request waits, every second. When none waits any longer, once. When nothing runs either, once more. Else
slowly, as long as gateways live, with what runs or with nothing: one that hears nothing knows that nothing is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

from services.queue_manager.learnt.wait_intervals import UPPER
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from services.queue_manager.telling.lines import Lines
from services.queue_manager.waits.elsewhere import NOWHERE_ELSE, Elsewhere
from services.queue_manager.waits.predictions import Predictions
from shared.bus import streams
from shared.messages.requests.requests import QueueLine, QueuePlace, QueueStatus, TenantLine
from shared.service.core import Effect, Send

STATUS_DELAY_S = 0.25  # a request pulled sooner than this has not waited: no gateway is told
STATUS_INTERVAL_S = 1.0
# While no request waits. What else wakes the core is enough for it: a gateway beats every 2 s, and without gateways
# there is none to tell. A gateway believes what it was told for a few of these
# (`gateway.inflight.queue_view.MAX_STATUS_AGE_S`).
QUIET_INTERVAL_S = 5.0
PLAN_PATIENCE_S = 0.5  # for so long a plan is waited for: a place that is told right before it is no place to count on
MAX_PLACES = 256  # places in a message; of the requests that came first
# To know them, all of a node's queue is predicted. Of more groups than this the nodes take turns: else one decision of
# the queue manager would take a second where there are hundreds of nodes, and all requests wait for it.
MAX_PLACE_GROUPS = 256
LEAST_PLACE_GROUPS = 8  # what a node costs at least, as groups


class Status:
    """Owns `State.status`, but for `StatusState.waits`."""

    def __init__(self, state: State, predictions: Predictions) -> None:
        self._state = state
        self._predictions = predictions
        self._lines = Lines(state, predictions)

    @property
    def wake_at(self) -> float | None:
        """When the gateways are told next, though no plan come; at once, while waits are predicted for that."""
        if self._state.status.turns:
            return self._state.now_s
        due_s = self._state.status.due_s
        return due_s + PLAN_PATIENCE_S if due_s is not None and self._state.plan.asked_at_s is not None else due_s

    def tell(self, now: float, *, is_tick: bool) -> list[Effect]:
        """Tell every live gateway, if it is time."""
        if self._state.anybody_waits:
            return self._while_waiting(now, is_tick=is_tick)
        status = self._state.status
        status.due_s, status.turns = None, {}
        if status.told_at_s is None:
            status.told_at_s = now  # since then none has been told
        is_news = status.has_told or (status.has_shown and not self._state.groups)
        if not is_news and now < status.told_at_s + QUIET_INTERVAL_S:
            return []
        status.has_told = False
        return self._to_gateways({}, *self._lines.look(NOWHERE_ELSE, now), now)

    def _while_waiting(self, now: float, *, is_tick: bool) -> list[Effect]:
        """When it is due, waits are predicted, where there are many groups one a tick; then gateways are told."""
        status = self._state.status
        if status.due_s is None:
            status.due_s = now + STATUS_DELAY_S
        if self.wake_at is None or now < self.wake_at or (self._lines.has_many and not is_tick):
            return []
        elsewhere = self._predictions.elsewhere(now)
        if not status.turns:
            self._watch(elsewhere, now)
            self._lines.begin()
            if self._lines.has_many:
                return []
        self._lines.predict(elsewhere, now)
        if status.turns:
            return []
        status.due_s, status.has_told = now + STATUS_INTERVAL_S, True
        return self._to_gateways(self._places(elsewhere, now), *self._lines.told(now), now)

    def _watch(self, elsewhere: Elsewhere, now: float) -> None:
        """One node at a time, so that it costs the same whatever their number."""
        self._predictions.bounds.look(now)
        names = list(self._state.waiting_at)
        self._state.status.num_told += 1
        if names:
            self._predictions.watch(self._state.nodes[names[self._state.status.num_told % len(names)]], elsewhere, now)

    def _to_gateways(
        self,
        places: dict[str, list[QueuePlace]],
        lines: list[QueueLine],
        by_tenant: list[TenantLine],
        now: float,
    ) -> list[Effect]:
        self._state.status.told_at_s, self._state.status.has_shown = now, bool(self._state.groups)
        return [
            Send(
                streams.tokens(gateway),
                QueueStatus(lines=lines, places=places.get(gateway, []), tenant_lines=by_tenant),
                to_existing=True,
            )
            for gateway in self._state.gateways.heard_s
        ]

    # --- places ---------------------------------------------------------------------------------------------------

    def _places(self, elsewhere: Elsewhere, now: float) -> dict[str, list[QueuePlace]]:
        """By gateway, the places of its requests that want to know, those that came first before others."""
        chosen: dict[str, list[Request]] = {}
        for name in self._state.watching:
            request = self._state.requests[name]
            of_gateway = chosen.setdefault(request.gateway, [])
            if request.group and len(of_gateway) < MAX_PLACES:
                of_gateway.append(request)
        groups = {request.group for requests in chosen.values() for request in requests}
        found: dict[str, QueuePlace] = {}
        for name in self._in_turn({self._state.groups[gid].node for gid in groups} - {""}):
            found |= self._at_node(name, groups, elsewhere, now)
        return {
            gateway: [found[request.request_id] for request in requests if request.request_id in found]
            for gateway, requests in chosen.items()
        }

    def _in_turn(self, names: set[str]) -> list[str]:
        """Of these nodes those whose places are told this time: behind the last one of the time before."""
        status = self._state.status
        ordered = sorted(names)
        begin = bisect_right(ordered, status.placed_at)
        chosen: list[str] = []
        num_groups = 0
        for name in [*ordered[begin:], *ordered[:begin]]:
            num_groups += max(LEAST_PLACE_GROUPS, len(self._state.nodes[name].queue))
            if chosen and num_groups > MAX_PLACE_GROUPS:
                status.placed_at = chosen[-1]
                return chosen
            chosen.append(name)
        status.placed_at = ""
        return chosen

    def _at_node(self, name: str, groups: set[str], elsewhere: Elsewhere, now: float) -> dict[str, QueuePlace]:
        """Places of the waiting members of these groups at one node."""
        places: dict[str, QueuePlace] = {}
        num_ahead, of_tenants = 0, Counter[str]()
        for group, outlook in self._predictions.outlooks(self._state.nodes[name], elsewhere, now):
            if group.gid in groups:
                for position, member in enumerate(group.waiting):
                    if member in self._state.watching:
                        wait = outlook.wait_at(position)
                        places[member] = QueuePlace(
                            member,
                            num_ahead + position,
                            wait.mean_s,
                            wait.quantile(UPPER),
                            num_ahead - of_tenants[group.tenant],
                        )
            num_ahead += group.num_waiting
            of_tenants[group.tenant] += group.num_waiting
        return places
