"""KV blocks as numbers: how many are held, free, or free with content that a request could take back.

The live pool knows each block (`gpu_node.engine.memory.device.block_pool`). Where no two requests share a prefix,
numbers are enough: what a request leaves behind is given up from its tail on, and who left first loses first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import NamedTuple


class GivenUp(NamedTuple):
    """The last of the blocks that were kept of a request."""

    request_id: str
    first: int
    """Of them, counted from the beginning of the request."""
    num_blocks: int


class BlockCounts:
    """All blocks of one device."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self._num_empty = num_blocks
        self._kept: OrderedDict[str, int] = OrderedDict()

    def num_kept(self, request_id: str) -> int:
        """Blocks of a request's beginning whose content is still there."""
        return self._kept.get(request_id, 0)

    def num_free_before(self, request_ids: Container[str]) -> int:
        """Blocks that are taken before any content of these requests is."""
        num_blocks = self._num_empty
        for request_id, num_kept in self._kept.items():
            if request_id in request_ids:
                break
            num_blocks += num_kept
        return num_blocks

    def take(self, num_blocks: int) -> list[GivenUp]:
        """Hold free blocks; there are enough. Those without content go first; what the others had is lost."""
        given_up = []
        self.num_free -= num_blocks
        num_from_empty = min(num_blocks, self._num_empty)
        self._num_empty -= num_from_empty
        num_left = num_blocks - num_from_empty
        while num_left:
            request_id = next(iter(self._kept))
            num_given_up = min(num_left, self._kept[request_id])
            num_left -= num_given_up
            self._kept[request_id] -= num_given_up
            given_up.append(GivenUp(request_id, self._kept[request_id], num_given_up))
            if not self._kept[request_id]:
                del self._kept[request_id]
        return given_up

    def take_back(self, request_id: str, num_most: int) -> int:
        """Hold what is still there of a request's beginning, at most so many blocks; returns how many.

        Content behind these is content of tokens that are not known any more: it will not be asked for.
        """
        num_there = self._kept.pop(request_id, 0)
        num_blocks = min(num_there, num_most)
        self._num_empty += num_there - num_blocks
        self.num_free -= num_blocks
        return num_blocks

    def release(self, request_id: str, num_full: int, num_others: int) -> None:
        """Free the blocks of a request: those that are full keep their content until they are taken."""
        self.num_free += num_full + num_others
        self._num_empty += num_others
        if num_full:
            self._num_empty += self._kept.pop(request_id, 0)
            self._kept[request_id] = num_full

    def check(self) -> None:
        """Assert that the numbers fit."""
        assert 0 <= self.num_free <= self.num_blocks
        assert self.num_free == self._num_empty + sum(self._kept.values())
        assert self._num_empty >= 0
