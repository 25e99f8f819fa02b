"""Pages of a device's KV memory that hold what another engine sends there (Weaver, ATC'25, §4.3)."""

from __future__ import annotations

from collections.abc import Collection

from gpu_node.engine.memory.arena import PageArena


class LentPages:
    """A tenant of the arena, for one link. What comes back is idle, and goes to any tenant that asks for a page."""

    def __init__(self, arena: PageArena) -> None:
        self._arena = arena
        self._lent: set[int] = set()
        self._idle: set[int] = set()
        arena.open(self, 0)

    @property
    def num_lent(self) -> int:
        """Pages that the sender has."""
        return len(self._lent)

    @property
    def num_idle_pages(self) -> int:
        """Pages that came back."""
        return len(self._idle)

    def surrender(self) -> int:
        """Give one of these away."""
        return self._idle.pop()

    def lend(self, num_pages: int) -> list[int]:
        """So many more, or as many as are unused; they stay with the sender until `take_back` or `close`."""
        pages: list[int] = []
        while len(pages) < num_pages and self._idle:
            pages.append(self._idle.pop())
        while len(pages) < num_pages and self._arena.num_leasable(self):
            page = self._arena.lease(self)
            pages.append(self._arena.reclaim(self) if page is None else page)
        self._lent.update(pages)
        return sorted(pages)

    def held(self, pages: Collection[int]) -> list[int]:
        """Those of them that the sender has."""
        return sorted(self._lent.intersection(pages))

    def take_back(self, pages: Collection[int]) -> None:
        """The sender uses these no more."""
        self._idle.update(self._lent.intersection(pages))
        self._lent.difference_update(pages)

    def close(self) -> None:
        """All of them are free."""
        self._arena.close(self)
