"""Which requests run, by model: answers that have not ended say something of lengths, too."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

LOOK_INTERVAL_S = 1.0  # a walk over those that run is made this often at most: (nodes x max_num_seqs) of a model
MAX_SINCE_S = 5.0  # what is seen now is taken to have held for so long at most


class Look(NamedTuple):
    """What there is to see."""

    since_s: float
    """Seconds for which it has held."""
    members: Collection[str]


class Runners(msgspec.Struct):
    """Of one model."""

    members: dict[str, None] = {}
    """Ids of those that a node has pulled."""
    looked_at_s: float = 0.0


class Running:
    """Owns `State.running`."""

    def __init__(self, runners: dict[str, Runners]) -> None:
        self._runners = runners

    def add(self, model: str, request_id: str) -> None:
        """A node has pulled it."""
        self._runners.setdefault(model, Runners()).members[request_id] = None

    def remove(self, model: str, request_id: str) -> None:
        """It has ended there."""
        del self._runners[model].members[request_id]

    def look(self, model: str, now: float) -> Look | None:
        """Those that run, if it is time to look at them again."""
        runners = self._runners[model]
        since_s = now - runners.looked_at_s
        if since_s < LOOK_INTERVAL_S:
            return None
        runners.looked_at_s = now
        return Look(min(since_s, MAX_SINCE_S), runners.members.keys())
