"""Pages of another device's KV memory that a model may fill, for as long as they are granted (Weaver, ATC'25, §4).

The device that lends them keeps its own books (`gpu_node.engine.memory.arena`); here stands only which pages were
granted, which of them the model has cut into blocks, and how many are wanted back.
"""

from __future__ import annotations

from collections.abc import Collection

from gpu_node.engine.memory.arena import Tenant


class LeasedPages:
    """What one tenant has of a memory that is not this device's. Pages are numbered by the lender."""

    def __init__(self) -> None:
        self._tenant: Tenant | None = None
        self._free: set[int] = set()
        self._cut: set[int] = set()
        self.num_owed = 0
        """Pages that are wanted back and hold blocks still."""

    @property
    def num_granted(self) -> int:
        """Pages, those that are owed included."""
        return len(self._free) + len(self._cut)

    def grant(self, pages: Collection[int]) -> None:
        """More pages; they count against what is owed."""
        assert not (self._free | self._cut).intersection(pages), "a page is granted once"
        self._free.update(pages)

    def withdraw(self, num_pages: int) -> list[int]:
        """Give up so many pages; returns those that hold no block, which are gone. The others are owed."""
        self.num_owed = min(self.num_owed + num_pages, self.num_granted)
        return self.give_back()

    def give_back(self) -> list[int]:
        """Of what is owed, what holds no block by now: gone, in the order of their numbers."""
        pages: list[int] = []
        while self.num_owed and (self._free or self._num_idle):
            if self._free:
                page = max(self._free)
                self._free.remove(page)
            else:
                assert self._tenant is not None
                page = self._tenant.surrender()
                self._cut.remove(page)
            pages.append(page)
            self.num_owed -= 1
        return sorted(pages)

    # --- as a tenant sees it ------------------------------------------------------------------------------------------

    def open(self, tenant: Tenant, num_pages: int) -> None:
        """Let the only tenant in; it has a right to nothing."""
        assert self._tenant is None
        assert num_pages == 0, "what is granted may be withdrawn"
        self._tenant = tenant

    def close(self, tenant: Tenant) -> None:
        """The tenant leaves; all its pages are free."""
        assert tenant is self._tenant
        self._tenant = None
        self._free |= self._cut
        self._cut.clear()

    def pages(self, tenant: Tenant) -> frozenset[int]:
        """Pages that it has cut into blocks."""
        assert tenant is self._tenant
        return frozenset(self._cut)

    def num_leasable(self, tenant: Tenant) -> int:
        """Pages that it could cut now."""
        assert tenant is self._tenant
        return 0 if self.num_owed else len(self._free)

    def lease(self, tenant: Tenant) -> int | None:
        """The first page that is not cut yet; None if there is none."""
        if not self.num_leasable(tenant):
            return None
        page = min(self._free)
        self._free.remove(page)
        self._cut.add(page)
        return page

    def reclaim(self, tenant: Tenant) -> int:
        """There is no other tenant to take a page from."""
        raise AssertionError(f"{tenant} has asked how many pages it could lease")

    def check(self) -> None:
        """Assert that what is owed is still held."""
        assert not self._free & self._cut, "cut or not"
        assert not (self.num_owed and (self._free or self._num_idle)), "what holds nothing is given back"

    @property
    def _num_idle(self) -> int:
        return 0 if self._tenant is None else self._tenant.num_idle_pages
