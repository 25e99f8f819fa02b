"""Groups that take newcomers: which one a request can join, and what will still come to it.

A group is closed when it has had ``δ × average batch`` requests; QLM (SoCC'24, Algorithm 1) halves groups that are
larger, which comes to the same without moving a request. One whose members wait is closed after a while, too: one that
joins it goes before those that came to other groups meanwhile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from services.queue_manager.state.group import Group
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.grouping import Batches, most_requests
from services.queue_manager.state.state import State
from shared.config.services.queue import QueueOptions


class Influx(NamedTuple):
    """Newcomers that will join a group."""

    per_s: float
    lasts_s: float
    fills_it: bool
    """They come until it is full, so their number is known."""


NO_INFLUX = Influx(0.0, 0.0, fills_it=False)


class OpenGroups:
    """Finds groups by their keys. Owns `State.open_groups`."""

    def __init__(self, state: State, options: QueueOptions, batches: Batches) -> None:
        self._state = state
        self._options = options
        self._rules = options.rules
        self._batches = batches

    def add(self, group: Group) -> None:
        """A group was opened: it is the one of its key from now on."""
        self._state.open_groups[group.key] = group.gid

    def remove(self, group: Group) -> None:
        """A group has ended; a newer one of its key stays."""
        if self._is_newest(group):
            del self._state.open_groups[group.key]

    def newest(self, key: GroupKey) -> Group | None:
        """The group that was opened last under this key, unless it has ended."""
        return self._state.groups.get(self._state.open_groups.get(key, ""))

    def find(self, key: GroupKey, now: float) -> Group | None:
        """The group that takes newcomers under this key, unless it is full or a plan has moved it off their place.

        Nor one that binds to a node requests that could wait anywhere, or that has been open for long.
        """
        group = self.newest(key)
        if group is None or self._room(group) <= 0:
            return None
        if key.place:
            return group if group.node == key.place and group.gid not in self._state.hand_overs else None
        is_bound = self._rules.stays_movable and group.running
        return None if is_bound or now > group.opened_s + self._rules.open_s else group

    def joining(self, group: Group, begin_s: float, now: float) -> Influx:
        """Newcomers that will join a group, at its pace so far: until it is full, or has been open for long.

        Or until it begins, in ``begin_s``, where that closes it. Where a request waits, none joins those that found a
        place, and one that was lost by a node is no newcomer.
        """
        is_open = group.key.is_movable and not (self._rules.stays_movable and group.running)
        room = self._room(group)
        closes_s = group.opened_s + self._rules.open_s - now
        if group.num_joined < 2 or now <= group.opened_s or not is_open or room <= 0 or closes_s <= 0:
            return NO_INFLUX
        per_s = (group.num_joined - 1) / (now - group.opened_s)
        full_s = room / per_s
        lasts_s = min(full_s, closes_s, begin_s if self._rules.stays_movable else math.inf)
        return Influx(per_s, lasts_s, fills_it=full_s < min(closes_s, begin_s))

    def _room(self, group: Group) -> int:
        """Newcomers that it could still take; a resume group takes none."""
        if group.root or not self._is_newest(group):
            return 0
        return most_requests(self._options, self._batches.average(group.model)) - group.num_joined

    def _is_newest(self, group: Group) -> bool:
        return self._state.open_groups.get(group.key) == group.gid
