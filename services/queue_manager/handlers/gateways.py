"""Gateways live and die."""

from __future__ import annotations

from services.queue_manager.handlers.requests import Requests
from services.queue_manager.state.state import State
from shared.bus import streams
from shared.service.core import Drop, Effect


class Gateways:
    """Owns `State.gateways` and what is remembered for the case of a gateway's death."""

    def __init__(self, state: State, requests: Requests) -> None:
        self._state = state
        self._requests = requests

    @property
    def wake_at(self) -> float | None:
        """When a gateway may have died."""
        return self._state.gateways.wake_at

    def hear(self, gateway: str, now: float) -> None:
        """A sign of life."""
        self._state.gateways.hear(gateway, now)

    def beat(self, gateway: str, now: float) -> None:
        """A gateway that lives deletes the payloads of finished requests itself: by the next beat but one it has."""
        self.hear(gateway, now)
        newest = self._state.finished_since_beat.pop(gateway, [])
        self._state.finished_before_beat.pop(gateway, None)
        if newest:
            self._state.finished_before_beat[gateway] = newest

    def find_place(self, gateway: str, now: float) -> None:
        """It lives, and goes back in its stream: the ends of which it was told may come to it only now."""
        self.hear(gateway, now)
        before = self._state.finished_before_beat.pop(gateway, [])
        newest = self._state.finished_since_beat.get(gateway, [])
        if before:
            self._state.finished_since_beat[gateway] = [*before, *newest]

    def expire(self, now: float) -> list[Effect]:
        """Bury those that were silent for too long."""
        return [effect for gateway in self._state.gateways.expire(now) for effect in self.gone(gateway)]

    def gone(self, gateway: str) -> list[Effect]:
        """Its clients are gone with it: forget what it asked for, its payloads and its stream."""
        self._state.gateways.forget(gateway)
        self._state.inventories.pop(gateway, None)
        lost = [request for request in self._state.requests.values() if request.gateway == gateway]
        effects = [effect for request in lost for effect in self._requests.forget(request)]
        finished = self._state.finished_since_beat.pop(gateway, [])
        before = self._state.finished_before_beat.pop(gateway, [])
        left_behind = [*before, *finished, *(request.request_id for request in lost)]
        payloads = [Drop(streams.payload(request_id)) for request_id in left_behind]
        return [*effects, *payloads, Drop(streams.tokens(gateway))]
