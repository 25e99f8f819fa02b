"""What has appeared and gone of a model's cached blocks, for an index outside of this node: bounded, and soft.

Changes are kept until they are asked for, the last one of each block. Where they become too many, they are dropped, and
all that is there is told anew: the keeper of the index can always begin again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from gpu_node.engine.memory.prefix import Heard
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.prefixes.prefixes import name_of

MAX_CHANGES = 1 << 16
"""That wait to be asked for."""

FoundBlocks = Iterable[tuple[Tier, bytes]]
"""Where blocks are found now, by digest; one that is in several tiers, once for each."""


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """A part of what has changed of a model."""

    model: str
    """``""`` where there is none."""
    is_new: bool = False
    """Forget what was told of it: what follows is all."""
    tiers: tuple[TierNews, ...] = ()
    has_more: bool = False
    """More is to be told, of this model or another."""


class BlockLog:
    """Of one model in all of its tiers."""

    def __init__(self, max_changes: int = MAX_CHANGES) -> None:
        self._max_changes = max_changes
        self._is_due = True  # all of it
        self._rest: list[tuple[Tier, int]] = []  # of all, what has not been told yet; the next one last
        self._changes: dict[tuple[Tier, int], bool] = {}
        self.num_dropped = 0
        """Changes that were not told by themselves."""

    def of(self, tier: Tier) -> Heard:
        """What a tier tells of itself."""
        return partial(self._hear, tier)

    def _hear(self, tier: Tier, digest: bytes, *, is_there: bool) -> None:
        if self._is_due:
            return
        self._changes[tier, name_of(digest)] = is_there
        if len(self._changes) > self._max_changes:
            self.num_dropped += len(self._changes)
            self.renew()

    def renew(self) -> None:
        """Tell all of it again, from the next time on."""
        self._is_due = True
        self._rest, self._changes = [], {}

    @property
    def has_more(self) -> bool:
        """Whether anything is to be told."""
        return self._is_due or bool(self._rest or self._changes)

    def take(self, model: str, found: FoundBlocks, most: int) -> BlockChanges:
        """At most so many changes, in their order; ``found`` is asked where all is to be told."""
        is_new = self._is_due
        if is_new:
            self._rest = [(tier, name_of(digest)) for tier, digest in found]
            self._rest.reverse()
            self._is_due = False
        came: dict[Tier, list[int]] = {}
        gone: dict[Tier, list[int]] = {}
        for _ in range(min(most, len(self._rest))):
            tier, name = self._rest.pop()
            came.setdefault(tier, []).append(name)
            most -= 1
        for key in list(islice(self._changes, most)):
            changed = came if self._changes.pop(key) else gone
            changed.setdefault(key[0], []).append(key[1])
        tiers = tuple(
            TierNews(int(tier), came.get(tier, []), gone.get(tier, [])) for tier in Tier if tier in came or tier in gone
        )
        return BlockChanges(model, is_new, tiers, self.has_more)
