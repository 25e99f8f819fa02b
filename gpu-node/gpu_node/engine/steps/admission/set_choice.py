"""Which requests come next, while memory is to spare: swapped or waiting ones (AdaptiveLLM, Algorithm 2)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.batch.order import RequestOrder, by_priority
from gpu_node.engine.steps.batch.roster import Roster

RANKED_CHOICES = 16
"""Choices for which those that wait stay ranked: priorities change with time, but their order seldom does."""


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """What is free now."""

    num_places: int
    num_blocks: int


class SetChoice:
    """Builds the largest set that fits of each kind, by priority, and takes the one of the higher mean priority.

    None behind one that does not fit is taken, so the first of a kind waits no longer than until it fits.
    """

    def __init__(self, order: RequestOrder) -> None:
        self._order = order
        self._ranked: list[EngineRequest] = []  # others than those in host memory, highest first
        self._known: set[EngineRequest] = set()
        self._num_choices = 0

    def choose(
        self, roster: Roster, room: FreeRoom, num_blocks: Callable[[EngineRequest], int], now: float
    ) -> list[EngineRequest]:
        """The set that comes next, highest first; empty where none fits. ``num_blocks``: free ones that one takes."""
        self._rank(roster, now)
        swapped = sorted(roster.swapped.values(), key=lambda one: by_priority(self._order, one, now), reverse=True)
        sets = [_largest(ranked, room, num_blocks) for ranked in (swapped, self._ranked)]
        found = [one for one in sets if one]
        if not found:
            return []
        chosen = max(found, key=lambda one: self._mean_priority(one, now))
        if chosen is sets[1]:
            del self._ranked[: len(chosen)]
            self._known.difference_update(chosen)
        return chosen

    def _rank(self, roster: Roster, now: float) -> None:
        """Newcomers find their places; one that has been aborted loses its own."""
        if self._num_choices % RANKED_CHOICES == 0:
            self._ranked, self._known = [], set()
        self._num_choices += 1
        newcomers = [one for one in roster.waiting if one not in self._known]
        if roster.swapped:
            newcomers = [one for one in newcomers if one.request_id not in roster.swapped]
        if not self._ranked:
            self._ranked = sorted(newcomers, key=lambda one: by_priority(self._order, one, now), reverse=True)
        else:
            for one in newcomers:
                insort(self._ranked, one, key=lambda other: _lowest_first(self._order, other, now))
        self._known.update(newcomers)
        if len(self._ranked) > len(roster.waiting) - len(roster.swapped):
            waiting = set(roster.waiting)
            self._ranked = [one for one in self._ranked if one in waiting]
            self._known = set(self._ranked)

    def _mean_priority(self, requests: list[EngineRequest], now: float) -> float:
        return sum(self._order.priority(request, now) for request in requests) / len(requests)


def _largest(
    ranked: Iterable[EngineRequest], room: FreeRoom, num_blocks: Callable[[EngineRequest], int]
) -> list[EngineRequest]:
    """The longest beginning of these for which there is room."""
    num_places, num_left_blocks = room.num_places, room.num_blocks
    found: list[EngineRequest] = []
    for request in ranked:
        num_places -= request.num_places
        num_left_blocks -= num_blocks(request)
        if num_places < 0 or num_left_blocks < 0:
            break
        found.append(request)
    return found


def _lowest_first(order: RequestOrder, request: EngineRequest, now: float) -> tuple[float, int]:
    """What sorts as `by_priority` does in reverse."""
    priority, minus_order = by_priority(order, request, now)
    return -priority, -minus_order
