"""What one message has changed, written where it changes and read once, when the message has been handled.

Groups, virtual queues and handlers write. Node notices, planning and the watch over predicted waits read, so nothing
that changes a queue has to know which of them must hear of it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Journal:
    """Changes since the last `clear`. ``""`` stands for no node, and is no change."""

    def __init__(self) -> None:
        self.queues: dict[str, None] = {}
        """Nodes whose queue, its members, or what may be pulled from it, has changed."""
        self.work: dict[str, None] = {}
        """Nodes that were given work, or whose work takes another time than was known."""
        self.retold: dict[str, None] = {}
        """Nodes that may have missed what they were told."""
        self.pulled: dict[str, None] = {}
        """Nodes that have pulled, and know by themselves how many requests are left."""
        self.num_calls = 0
        """Changes that call for another plan at once."""
        self.has_chance = False
        """Another order may be better, though no promise is in danger."""
        self.closed: list[str] = []
        """Groups that have ended."""
        self.started: list[str] = []
        """Requests that were pulled."""
        self.ended: list[str] = []
        """Requests that have finished or were given up."""

    def note_queue(self, name: str) -> None:
        """The queue of this node has changed."""
        if name:
            self.queues[name] = None

    def note_queues(self, names: Iterable[str]) -> None:
        """So have the queues of these."""
        self.queues.update(dict.fromkeys(names))

    def note_work(self, name: str) -> None:
        """This node has other work."""
        if name:
            self.work[name] = None

    def call_plan(self) -> None:
        """Nodes or the places of groups have changed so that another order is needed at once."""
        self.num_calls += 1

    def clear(self) -> None:
        """All of it has been read."""
        for names in (self.queues, self.work, self.retold, self.pulled, self.closed, self.started, self.ended):
            names.clear()
        self.num_calls, self.has_chance = 0, False
