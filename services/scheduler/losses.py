"""Nodes that fell silent and have not come back: what an operator is told of. Who says goodbye is not missed."""

from __future__ import annotations

import msgspec

REMEMBER_S = 3600.0  # a node that stays away for longer was taken away for good
MAX_REMEMBERED = 1_000  # names; of more, those that were lost last


class Losses(msgspec.Struct):
    """A part of the scheduler's state."""

    since_s: dict[str, float] = {}
    """By node, in the order in which they were lost."""
    num_lost: int = 0
    """Times that a node was lost."""

    @property
    def wake_at(self) -> float | None:
        """When the first is forgotten."""
        return min(self.since_s.values()) + REMEMBER_S if self.since_s else None

    def lose(self, node: str, now: float) -> None:
        """A node is dead, and had not said that it goes."""
        self.num_lost += 1
        self.find(node)
        self.since_s[node] = now
        if len(self.since_s) > MAX_REMEMBERED:
            del self.since_s[next(iter(self.since_s))]

    def find(self, node: str) -> None:
        """It is there, or has said goodbye since."""
        self.since_s.pop(node, None)

    def expire(self, now: float) -> None:
        """Forget those that stay away."""
        for node in [node for node, since_s in self.since_s.items() if since_s + REMEMBER_S <= now]:
            del self.since_s[node]
