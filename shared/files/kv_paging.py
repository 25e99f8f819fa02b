"""How the memory for keys and values is cut, and how long a request may be that it holds."""

from __future__ import annotations

from dataclasses import dataclass

LINE_BYTES = 64
"""Blocks begin at multiples of it: a line of the processor's cache (kLineBytes in kernels.h)."""
MIN_PAGE_BYTES = 2 << 20
"""A large page of the system's, so that memory that belongs together is mapped together."""
MAX_PAGES = 32
"""Into so many pages at most a shared memory is cut: 3 % of it is lent at a time."""
MAX_WASTE = 0.04
"""Of a page, at most this part may be left over where blocks are cut from it."""


@dataclass(frozen=True, slots=True)
class Paging:
    """How a memory is cut."""

    num_pages: int
    page_bytes: int

    def blocks_per_page(self, block_bytes: int) -> int:
        """Whole blocks in a page."""
        return self.page_bytes // block_bytes

    def waste(self, block_bytes: int) -> float:
        """Part of a page that is left over."""
        return self.page_bytes % block_bytes / self.page_bytes


def paging(memory_bytes: int, max_models: int) -> Paging:
    """Pages of a memory for ``max_models`` models: one page where it is not shared, so that nothing is cut off.

    Page sizes depend on no model, because pages outlive models. The more blocks a page has, the less is left over: 25
    of them leave less than `MAX_WASTE` whatever their size, and most sizes need far fewer.
    """
    num_large = max(1, -(-memory_bytes // (MAX_PAGES * MIN_PAGE_BYTES)))
    page_bytes = num_large * MIN_PAGE_BYTES
    if max_models == 1 or page_bytes >= memory_bytes:
        return Paging(1, memory_bytes)
    return Paging(memory_bytes // page_bytes, page_bytes)


def block_bytes(block_size: int, token_bytes: int) -> int:
    """Of a block of so many tokens, in whole lines."""
    return -(-block_size * token_bytes // LINE_BYTES) * LINE_BYTES


def room_tokens(kv_bytes: int, max_models: int, num_sharing: int, block_size: int, token_bytes: int) -> int:
    """The longest request, in tokens, that one of ``max_models`` models can hold in its equal part of so much memory.

    ``num_sharing`` of them, and of other engines, have pages of it.
    """
    if kv_bytes <= 0:
        return 0
    pages = paging(kv_bytes, num_sharing)
    num_blocks = pages.num_pages // max_models * pages.blocks_per_page(block_bytes(block_size, token_bytes))
    return num_blocks * block_size
