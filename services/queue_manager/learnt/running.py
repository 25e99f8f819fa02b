"""Which requests run, by model: answers that have not ended say something of lengths, too."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

LOOK_INTERVAL_S = 1.0  # a walk over those that run is made this often at most: (nodes x max_num_seqs) of a model
MAX_SINCE_S = 5.0  # what is seen now is not taken to have held for longer


class Look(NamedTuple):
    """What there is to see."""

    since_s: float
    """Seconds since the last look."""
    members: Collection[str]


class Runners(msgspec.Struct):
    """Of one model."""

    members: dict[str, None] = {}
    """Ids of those that a node has pulled."""
    looked_at_s: float = 0.0
    balances: dict[str, float] = {}
    """By node, output tokens of those that have left since the last look, less what those that ran had drawn by it.

    So with what those that run have drawn by now, it is what the node has drawn meanwhile.
    """


class RunningRequests:
    """Owns `State.running`."""

    def __init__(self, runners: dict[str, Runners]) -> None:
        self._runners = runners

    def add(self, model: str, request_id: str) -> None:
        """A node has pulled it."""
        self._runners.setdefault(model, Runners()).members[request_id] = None

    def remove(self, model: str, request_id: str) -> None:
        """It has ended there."""
        del self._runners[model].members[request_id]

    def draw(self, model: str, node: str, num_tokens: int) -> None:
        """One that has left the node has drawn so many tokens there."""
        balances = self._runners[model].balances
        if node in balances:
            balances[node] += num_tokens

    def drawn(self, model: str, stocks_tokens: dict[str, float]) -> dict[str, float]:
        """Output tokens that nodes have drawn since the last look, where there was one.

        ``stocks_tokens``: what those that run there have drawn by now.
        """
        runners = self._runners[model]
        before = runners.balances
        runners.balances = {node: -stock for node, stock in stocks_tokens.items()}
        return {node: before[node] + stock for node, stock in stocks_tokens.items() if node in before}

    def look(self, model: str, now: float) -> Look | None:
        """Those that run, if it is time to look at them again."""
        runners = self._runners[model]
        since_s = now - runners.looked_at_s
        if since_s < LOOK_INTERVAL_S:
            return None
        runners.looked_at_s = now
        return Look(since_s, runners.members.keys())
