"""Contiguous ranges of slots from a buddy allocator: sizes are powers of two, and a range has an aligned address.

A request for n slots gets the next power of two. A larger free range is halved until it fits; a freed range is joined
with its buddy, the other half of the range it was cut from, whenever both are free. (Knuth, The Art of Computer
Programming 1, §2.5; the baselines of PagedAttention, SOSP'23, §6.1, assume it.)
"""

from __future__ import annotations

from bisect import insort


class BuddyAllocator:
    """``num_slots`` need not be a power of two: its binary digits are the ranges to begin with, largest first."""

    def __init__(self, num_slots: int) -> None:
        assert num_slots > 0
        self.num_slots = num_slots
        self.num_free_slots = num_slots
        # Free addresses of each order, ascending: the lowest goes first. A range of order k is aligned to its size, and
        # the buddy of what lies at its end would reach beyond the memory, so it is never free: nothing joins wrongly.
        self._free: list[list[int]] = [[] for _ in range(num_slots.bit_length())]
        self._orders: dict[int, int] = {}
        address = 0
        for order in reversed(range(num_slots.bit_length())):
            if num_slots >> order & 1:
                self._free[order].append(address)
                address += 1 << order

    def allocate(self, num_slots: int) -> int | None:
        """Address of a range for ``num_slots`` slots, from the smallest free range that is large enough; else None."""
        wanted = order_for(num_slots)
        order = next((order for order in range(wanted, len(self._free)) if self._free[order]), None)
        if order is None:
            return None
        address = self._free[order].pop(0)
        while order > wanted:
            order -= 1
            insort(self._free[order], address + (1 << order))
        self._orders[address] = wanted
        self.num_free_slots -= 1 << wanted
        return address

    def free(self, address: int) -> None:
        """Give a range back, and join it with its buddy as often as that is free."""
        order = self._orders.pop(address)
        self.num_free_slots += 1 << order
        while order + 1 < len(self._free) and (buddy := address ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            address = min(address, buddy)
            order += 1
        insort(self._free[order], address)

    def size(self, address: int) -> int:
        """Slots of the range that was allocated at ``address``."""
        return 1 << self._orders[address]

    def free_ranges(self) -> list[tuple[int, int]]:
        """(address, slots) of every free range, by address."""
        return sorted((address, 1 << order) for order, found in enumerate(self._free) for address in found)

    def check(self) -> None:
        """Assert that free and allocated ranges tile the memory. O(ranges)."""
        allocated = [(address, 1 << order) for address, order in self._orders.items()]
        end = 0
        for address, size in sorted(self.free_ranges() + allocated):
            assert address == end, "no gap and no overlap"
            assert address % size == 0, "aligned"
            end += size
        assert end == self.num_slots
        assert self.num_free_slots == sum(size for _, size in self.free_ranges())


def order_for(num_slots: int) -> int:
    """The least k such that 2^k slots are enough."""
    assert num_slots > 0
    return (num_slots - 1).bit_length()
