"""The node's virtual queue as the queue manager told it last: whose turn it is, and which groups give way to them.

Between two messages it only shrinks: what was pulled is counted down, and a group that had nothing left is passed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from gpu_node.agent.decisions.models.models import NodeModels
from shared.messages.requests.requests import GroupRef, VirtualQueue


class ToldQueue:
    """Owns what the last `VirtualQueue` said, as far as it still holds."""

    def __init__(self, models: NodeModels) -> None:
        self._models = models
        self._groups: list[GroupRef] = []
        self._yielding: list[str] = []
        self._hopeless: list[str] = []
        self._empty: set[str] = set()
        """Groups that had nothing left at the last pull; a new `VirtualQueue` rings again."""
        self.awaits = ""
        """The model that the node is to load where no group waits, or ``""``."""
        self.decoded_elsewhere: frozenset[str] = frozenset()
        """Models that others go on with once their prompts are computed here."""
        self.read_ahead: frozenset[str] = frozenset()
        """Of these, models whose KV is read while prompts are computed."""

    def tell(self, message: VirtualQueue) -> None:
        """All of it is new."""
        self._groups, self._yielding, self._hopeless = message.groups, message.yielding, message.hopeless
        self.awaits = message.awaits
        self.decoded_elsewhere = frozenset(message.decoded_elsewhere)
        self.read_ahead = frozenset(message.read_ahead)
        self._empty = set()

    @property
    def models(self) -> set[str]:
        """That its groups are for."""
        return {ref.model for ref in self._groups}

    def head(self, headroom_of: Callable[[GroupRef], int]) -> GroupRef | None:
        """The first group whose turn it is. Groups without headroom are passed by others of their model only."""
        refs = [ref for ref in self._groups if self._concerns(ref)]
        alike = itertools.takewhile(lambda ref: ref.model == refs[0].model, refs)
        return next((ref for ref in alike if headroom_of(ref) > 0), None)

    def _concerns(self, ref: GroupRef) -> bool:
        """A request waits in the group, and this node can serve it, or has to say why no node can."""
        if ref.group in self._empty or self._models.is_awaited(ref.model):
            return False
        return ref.model not in self._models.broken or ref.model in self._hopeless

    def yielding_to(self, head: GroupRef) -> list[str]:
        """Groups that give way to this one: only to the one that the queue manager meant, which they stand behind."""
        first = next((ref for ref in self._groups if ref.max_running is None), None)
        return self._yielding if first is not None and head.group == first.group else []

    def pulled(self, group: str, num_requests: int, *, is_empty: bool) -> None:
        """Fewer wait, until the queue manager tells anew: no running request gives way to one that is here already."""
        if is_empty:
            self._empty.add(group)
        self._groups = [
            msgspec.structs.replace(ref, num_waiting=max(ref.num_waiting - num_requests, 0))
            if ref.group == group
            else ref
            for ref in self._groups
        ]
