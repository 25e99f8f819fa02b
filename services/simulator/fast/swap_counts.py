"""Host memory of the fast engine: `gpu_node.engine.memory.tiers.swap_space` for sequences without shared blocks.

A block is the request that it is of and its place in that. It has no content, and lies nowhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable

from services.simulator.fast.block_counts import GivenUp
from shared.config.engines.engine import SwapCopies


class SwapCounts:
    """Who holds how many blocks, whose copies wait, and what stays of those who came back."""

    def __init__(self, num_blocks: int, copies: SwapCopies) -> None:
        self._num_blocks = num_blocks
        self._copies = copies
        self._held: dict[str, int] = {}
        self._late: dict[str, set[int]] = {}  # of those: places whose content is the device's still
        self._kept: OrderedDict[tuple[str, int], None] = OrderedDict()  # used least recently first
        self._num_due = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._held

    @property
    def num_used(self) -> int:
        """Blocks that requests hold."""
        return sum(self._held.values())

    @property
    def num_free(self) -> int:
        """Those that no request does."""
        return self._num_blocks - self.num_used

    @property
    def waiting(self) -> Container[str]:
        """Requests of which a copy waits."""
        return self._late

    def num_held(self, request_id: str) -> int:
        """Blocks of a request; 0 of one that is not here."""
        return self._held.get(request_id, 0)

    def num_late(self, request_id: str) -> int:
        """Those of them whose content is the device's still."""
        return len(self._late.get(request_id, ()))

    def has_copies(self, request_id: str) -> bool:
        """Whether anything of a request is here, or stays."""
        return request_id in self._held or any(owner == request_id for owner, _ in self._kept)

    def num_copied(self, request_id: str, num_full: int) -> int:
        """Of its first full blocks, those of which there are copies."""
        return sum((request_id, place) in self._kept for place in range(num_full))

    def take(self, request_id: str, num_full: int, num_others: int) -> None:
        """A request gives way, with so many full and other blocks, for which there is room; the copies are due."""
        copied = {place for place in range(num_full) if (request_id, place) in self._kept}
        for place in copied:
            del self._kept[request_id, place]
        self._held[request_id] = num_full + num_others
        while len(self._kept) > self.num_free:
            self._kept.popitem(last=False)
        new = set(range(num_full)) - copied
        if self._copies == "late":
            self._num_due += num_others
            if new:
                self._late[request_id] = new
        else:
            self._num_due += len(new) + num_others

    def leave(self, given_up: Iterable[GivenUp]) -> None:
        """These blocks of the device are taken for other content."""
        for request_id, first, num_blocks in given_up:
            late = self._late.get(request_id)
            if late is not None:
                due = late.intersection(range(first, first + num_blocks))
                self._num_due += len(due)
                late -= due
                if not late:
                    del self._late[request_id]

    def copy_all(self) -> bool:
        """No copy waits any more; whether any did."""
        num_late = sum(map(len, self._late.values()))
        self._late.clear()
        self._num_due += num_late
        return num_late > 0

    def due(self) -> int:
        """Blocks to copy in the step that is drafted."""
        num_due, self._num_due = self._num_due, 0
        return num_due

    def give_back(self, request_id: str, num_full: int) -> int:
        """A request has left; copies of its full blocks stay until others need the room. How many blocks it had."""
        late = self._late.pop(request_id, set())
        if self._copies != "at_once":
            for place in reversed(range(num_full)):
                if place not in late:
                    self._kept[request_id, place] = None
        return self._held.pop(request_id, 0)

    def check(self) -> None:
        """Assert that the numbers fit."""
        assert self.num_used + len(self._kept) <= self._num_blocks
        assert self._late.keys() <= self._held.keys()
        assert not any(owner in self._held for owner, _ in self._kept)
