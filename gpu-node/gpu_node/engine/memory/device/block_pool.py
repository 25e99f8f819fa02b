"""The blocks of one model in one memory: counted by reference, cut from the pages that the model leases.

Block ``page * blocks_per_page + slot`` is slot ``slot`` of a page. A block that is not held is free; it may be *kept*:
its content is cached, and is given up only when blocks without content are at their end.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from gpu_node.engine.memory.arena import Pages


def _nothing_to_forget(block: int) -> None:
    raise AssertionError(f"block {block} is not kept")


class BlockPool:
    """A tenant of an arena."""

    def __init__(
        self,
        arena: Pages,
        blocks_per_page: int,
        num_pages: int = 0,
        forget: Callable[[int], None] = _nothing_to_forget,
    ) -> None:
        """With a right to ``num_pages``. ``forget`` is told each kept block whose content is given up.

        Raises `ArenaFullError` when the pages are in use.
        """
        self._arena = arena
        self._blocks_per_page = blocks_per_page
        self._forget = forget
        self._references: dict[int, int] = {}
        # doubly linked list and index in one: taking from the front and from the middle are both O(1)
        self._empty: OrderedDict[int, None] = OrderedDict()
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._num_held: dict[int, int] = {}  # held blocks of each leased page
        self._idle: OrderedDict[int, None] = OrderedDict()  # pages without one, idle longest first
        arena.open(self, num_pages)

    @property
    def num_free(self) -> int:
        """Blocks that could be taken now, those of pages that could be leased included."""
        return len(self._empty) + len(self._kept) + self._blocks_per_page * self._arena.num_leasable(self)

    @property
    def num_used(self) -> int:
        """Blocks that are held."""
        return len(self._references)

    @property
    def num_idle_pages(self) -> int:
        """Leased pages without a block that is held."""
        return len(self._idle)

    @property
    def num_held_pages(self) -> int:
        """Leased pages with one."""
        return len(self._num_held) - len(self._idle)

    @property
    def free_blocks(self) -> list[int]:
        """Free blocks of leased pages, in the order in which they will be taken."""
        return [*self._empty, *self._kept]

    @property
    def kept_blocks(self) -> list[int]:
        """Those of them whose content is cached."""
        return list(self._kept)

    def num_references(self, block: int) -> int:
        """How often a block is held."""
        return self._references.get(block, 0)

    def take(self) -> int:
        """Hold a free block; there is one.

        What costs least goes first: a block without content, an unused page, the own content that was used least
        recently, and last a page full of another model's content, since that costs the other model as much as all
        blocks of the page.
        """
        if not self._empty:
            page = self._arena.lease(self)
            if page is None and not self._kept:
                page = self._arena.reclaim(self)
            if page is not None:
                self._cut(page)
        if self._empty:
            block, _ = self._empty.popitem(last=False)
        else:
            block, _ = self._kept.popitem(last=False)
            self._forget(block)
        self._begin(block)
        return block

    def take_for(self, others: Sequence[int], moves: dict[int, int]) -> list[int]:
        """A table of blocks in the place of others': taken at their first occurrence in ``moves``, then shared."""
        for other in others:
            if other in moves:
                self.hold(moves[other])
            else:
                moves[other] = self.take()
        return [moves[other] for other in others]

    def hold(self, block: int) -> None:
        """One more reference to a block that is held or kept."""
        if block in self._references:
            self._references[block] += 1
        else:
            del self._kept[block]
            self._begin(block)

    def release(self, block: int, *, keep: bool = False) -> None:
        """One reference less. The last one frees the block: kept as the one used most recently, or taken next."""
        self._references[block] -= 1
        if self._references[block]:
            return
        del self._references[block]
        if keep:
            self._kept[block] = None
        else:
            self._empty[block] = None
            self._empty.move_to_end(block, last=False)
        page = block // self._blocks_per_page
        self._num_held[page] -= 1
        if self._num_held[page] == 0:
            self._idle[page] = None

    def surrender(self) -> int:
        """Give up the page that has been idle longest, with what is kept in it."""
        page, _ = self._idle.popitem(last=False)
        del self._num_held[page]
        for block in self._blocks_of(page):
            if block in self._kept:
                del self._kept[block]
                self._forget(block)
            else:
                del self._empty[block]
        return page

    def forget_kept(self) -> None:
        """Give up the content of all kept blocks; they stay free."""
        while self._kept:
            block, _ = self._kept.popitem(last=False)
            self._forget(block)
            self._empty[block] = None

    def close(self) -> None:
        """Leave the arena; no block is held any more."""
        assert not self._references, "blocks are held"
        self._arena.close(self)

    def check(self) -> None:
        """Assert that each block of a leased page is held or free, once, and that idle pages are those unheld."""
        pages = self._arena.pages(self)
        assert self._num_held.keys() == pages, "pages are the arena's"
        blocks = [*self._references, *self._empty, *self._kept]
        assert sorted(blocks) == [block for page in sorted(pages) for block in self._blocks_of(page)], "once"
        held = Counter(block // self._blocks_per_page for block in self._references)
        assert all(self._num_held[page] == held[page] for page in pages), "held blocks are counted"
        assert self._idle.keys() == {page for page in pages if not held[page]}, "idle pages hold nothing"
        assert all(count > 0 for count in self._references.values()), "held at least once"
        self._arena.check()

    def _blocks_of(self, page: int) -> range:
        return range(page * self._blocks_per_page, (page + 1) * self._blocks_per_page)

    def _cut(self, page: int) -> None:
        self._num_held[page] = 0
        self._idle[page] = None
        self._empty.update(dict.fromkeys(self._blocks_of(page)))

    def _begin(self, block: int) -> None:
        self._references[block] = 1
        page = block // self._blocks_per_page
        if self._num_held[page] == 0:
            del self._idle[page]
        self._num_held[page] += 1
