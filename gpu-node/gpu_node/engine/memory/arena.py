"""One KV memory for several models: cut into equal pages, each leased to one model at a time.

A page holds whole blocks of its tenant, and blocks of two models need not have the same size: models with different
layers and KV heads so lend each other room, page by page (one KV allocator for several models: Weaver, ATC'25, §4).

Every tenant has a right to a number of pages, leased or not. Beyond it, it borrows what the others have no right to. A
borrowed page comes back as soon as none of its blocks is held, cached content or not: lending never starves the lender.
"""

from __future__ import annotations

from typing import Protocol


class ArenaFullError(RuntimeError):
    """A tenant's right to pages cannot be granted: others hold blocks in what it would need."""


class Tenant(Protocol):
    """A model's blocks in an arena."""

    @property
    def num_idle_pages(self) -> int:
        """Leased pages without a block that is held."""
        ...

    def surrender(self) -> int:
        """Forget what one idle page holds, and everything about the page; its number."""
        ...


class Pages(Protocol):
    """A memory as its tenants see it."""

    def open(self, tenant: Tenant, num_pages: int) -> None:
        """Let a tenant in, with a right to ``num_pages``."""
        ...

    def close(self, tenant: Tenant) -> None:
        """Take all pages of a tenant back."""
        ...

    def pages(self, tenant: Tenant) -> frozenset[int]:
        """What a tenant leases."""
        ...

    def num_leasable(self, tenant: Tenant) -> int:
        """Pages that the tenant could lease now, one after another."""
        ...

    def lease(self, tenant: Tenant) -> int | None:
        """A page; None if there is none that is free."""
        ...

    def reclaim(self, tenant: Tenant) -> int:
        """A page that another tenant does not use."""
        ...

    def check(self) -> None:
        """Assert that the books balance."""
        ...


class PageArena:
    """Which tenant has which page of one memory. Pages are numbers; what lies in them is the tenants' business."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = set(range(num_pages))
        self._pages: dict[Tenant, set[int]] = {}
        self._rights: dict[Tenant, int] = {}

    def pages(self, tenant: Tenant) -> frozenset[int]:
        """What a tenant leases."""
        return frozenset(self._pages[tenant])

    def open(self, tenant: Tenant, num_pages: int) -> None:
        """Let a tenant in, with a right to ``num_pages``. What others borrowed too much of is taken back at once.

        Raises `ArenaFullError` where that is not enough; then nothing was granted.
        """
        assert tenant not in self._pages
        while self._num_unclaimed() < num_pages:
            lender = self._lender(tenant)
            if lender is None:
                raise ArenaFullError(f"{num_pages} pages are needed; {self._num_unclaimed()} are not in use")
            self._take_back(lender)
        self._pages[tenant], self._rights[tenant] = set(), num_pages

    def close(self, tenant: Tenant) -> None:
        """Take all pages of a tenant back."""
        self._free |= self._pages.pop(tenant)
        del self._rights[tenant]

    def num_leasable(self, tenant: Tenant) -> int:
        """Pages that the tenant could lease now, one after another."""
        others = sum(self._num_lendable(other) for other in self._pages if other is not tenant)
        return max(0, -self._num_borrowed(tenant)) + self._num_unclaimed() + others

    def lease(self, tenant: Tenant) -> int | None:
        """The first free page that no other tenant has a right to; None if there is none."""
        if self._num_borrowed(tenant) >= 0 and self._num_unclaimed() == 0:
            return None
        page = min(self._free)
        self._free.remove(page)
        self._pages[tenant].add(page)
        return page

    def reclaim(self, tenant: Tenant) -> int:
        """Lease an idle page of another tenant, of the one that has most of them to lend; there is one."""
        lender = self._lender(tenant)
        assert lender is not None, "the tenant has asked how many pages it could lease"
        page = self._take_back(lender)
        self._free.remove(page)
        self._pages[tenant].add(page)
        return page

    def check(self) -> None:
        """Assert that every page is free or leased, once, and that all rights can be granted. O(pages)."""
        leased = [page for pages in self._pages.values() for page in pages]
        assert sorted([*leased, *self._free]) == list(range(self.num_pages)), "a page has one tenant or none"
        assert self._num_unclaimed() >= 0, "rights are kept"

    def _num_borrowed(self, tenant: Tenant) -> int:
        """Pages beyond its right; below 0, what it may still lease of it."""
        return len(self._pages[tenant]) - self._rights[tenant]

    def _num_unclaimed(self) -> int:
        """Free pages that no tenant has a right to."""
        claimed = sum(max(len(pages), self._rights[tenant]) for tenant, pages in self._pages.items())
        return self.num_pages - claimed

    def _num_lendable(self, tenant: Tenant) -> int:
        return max(0, min(tenant.num_idle_pages, self._num_borrowed(tenant)))

    def _lender(self, borrower: Tenant) -> Tenant | None:
        """The tenant with most to lend; the first that came, of several."""
        lenders = [tenant for tenant in self._pages if tenant is not borrower and self._num_lendable(tenant)]
        return max(lenders, key=self._num_lendable, default=None)

    def _take_back(self, lender: Tenant) -> int:
        page = lender.surrender()
        self._pages[lender].remove(page)
        self._free.add(page)
        return page
