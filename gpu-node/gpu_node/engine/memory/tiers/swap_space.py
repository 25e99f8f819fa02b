"""Sequences in host memory: their tables, what of them is copied there, and what only will be.

A block of a sequence that gives way is copied once, and as late as can be. While its content is cached on the device,
host memory keeps a place for it, and the copy is made by the plan that takes the device's block. What was copied stays
behind, in host memory that is not needed, when the sequence comes back, so that giving way again moves what is new.
Prompts of others do not look there. Where `HostCache` copies full blocks as they are made, these are the copies.

The forms (`SwapCopies`): ``at_once``, the plain one, copies all of a sequence when it gives way; ``kept`` lets copies
stay; ``late`` makes them late, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gpu_node.engine.border.plan import BlockSwap
from gpu_node.engine.memory.device.device_blocks import BlockPlace, SequenceBlocks, distinct, references
from gpu_node.engine.memory.prefix import Prefix, PrefixCache, chain_of
from gpu_node.engine.memory.tiers.host_cache import HostCache
from shared.config.engines.engine import SwapCopies
from shared.messages.memory.tiers import Tier


class SwapSpace:
    """The tables of one model's sequences that are swapped out; their blocks are the host's."""

    def __init__(self, device: PrefixCache, host: HostCache, copies: SwapCopies) -> None:
        """``copies`` are made late only where no other model can take the device's blocks."""
        self._device = device
        self._host = host
        self._copies = copies
        self.tables: dict[int, SequenceBlocks] = {}
        self._late: dict[int, int] = {}  # block of the host by that of the device, which still has the content
        self._sources: dict[int, int] = {}  # and the other way round
        self._due: list[BlockSwap] = []

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self.tables

    @property
    def num_used_blocks(self) -> int:
        """Blocks of host memory that the sequences hold."""
        return len(distinct(self.tables, self.tables))

    @property
    def num_late_blocks(self) -> int:
        """Those of them whose content is the device's still."""
        return len(self._late)

    def places(self, sequence_id: int) -> list[BlockPlace]:
        """Where the content of a sequence's blocks is."""
        return [
            BlockPlace(Tier.HOST, block)
            if (source := self._sources.get(block)) is None
            else BlockPlace(Tier.DEVICE, source)
            for block in self.tables[sequence_id].blocks
        ]

    # --- out ----------------------------------------------------------------------------------------------------------

    def num_copied_blocks(self, tables: Collection[SequenceBlocks]) -> int:
        """Blocks of these tables of the device that host memory has, or has a place for."""
        return len(self._copies_of(tables))

    def has_room(self, tables: Collection[SequenceBlocks]) -> bool:
        """Whether host memory has room for all that these tables of the device hold together."""
        copies = self._copies_of(tables)
        num_unheld = sum(self._host.pool.num_references(block) == 0 for block in set(copies.values()))
        num_new = len({block for table in tables for block in table.blocks} - copies.keys())
        return num_new <= self._host.pool.num_free - num_unheld

    def take(self, tables: Mapping[int, SequenceBlocks]) -> list[BlockSwap]:
        """Sequences give way, whose tables of the device these are; the moves to make now."""
        pool, copies = self._host.pool, self._copies_of(tables.values())
        for block in copies.values():
            pool.hold(block)  # until the tables are made: none of it is given up for the others
        moves = dict(copies)
        for sequence_id, table in tables.items():
            blocks = pool.take_for(table.blocks, moves)
            self.tables[sequence_id] = SequenceBlocks(blocks, table.prefix, table.num_known)
        for block in copies.values():
            pool.release(block)
        prefixes = {block: prefix for table in tables.values() for block, prefix in _known(table)}
        swaps = [BlockSwap(block, to) for block, to in moves.items() if block not in copies]
        swaps = [one for one in swaps if not self._can_wait(one, prefixes.get(one.device_block))]
        self._host.lend(one.host_block for one in swaps)
        return swaps

    def _copies_of(self, tables: Iterable[SequenceBlocks]) -> dict[int, int]:
        """By block of the device, the host's with the same content."""
        found: dict[int, int] = {}
        if self._copies == "at_once":
            return found
        for table in tables:
            for block, prefix in _known(table):
                if (host_block := self._host.find(prefix)) is not None:
                    found.setdefault(block, host_block)
        return found

    def _can_wait(self, swap: BlockSwap, prefix: Prefix | None) -> bool:
        """Offers what is moved under its prefix; whether the move can wait, since the device has that content."""
        if prefix is None or self._copies == "at_once" or self._host.caches:
            return False
        device_block = self._device.find(prefix)
        is_offered = self._host.offer(swap.host_block, prefix)
        if self._copies != "late" or not is_offered or device_block is None or device_block in self._late:
            return False
        self._late[device_block] = swap.host_block
        self._sources[swap.host_block] = device_block
        return True

    def leave(self, device_block: int) -> None:
        """A block of the device is taken for other content."""
        host_block = self._late.pop(device_block, None)
        if host_block is not None:
            del self._sources[host_block]
            self._due.append(BlockSwap(device_block, host_block))

    def copy_all(self) -> bool:
        """None waits any more; whether any did."""
        late = list(self._late)
        for device_block in late:
            self.leave(device_block)
        return bool(late)

    def due(self) -> list[BlockSwap]:
        """Moves to make by the plan that is drafted, before all else of it."""
        due, self._due = self._due, []
        return due

    # --- back ---------------------------------------------------------------------------------------------------------

    def still_on_device(self, sequence_ids: Collection[int]) -> dict[int, int]:
        """Of the host's blocks of these sequences, those whose content is on the device too, and where."""
        found: dict[int, int] = {}
        for table in map(self.tables.__getitem__, sequence_ids):
            for block, prefix in _known(table):
                if (device_block := self._device.find(prefix)) is not None:
                    found.setdefault(block, device_block)
        return found

    def give_back(self, sequence_id: int) -> None:
        """A sequence has left host memory; of what was copied, its end is given up first."""
        for block in reversed(self.tables.pop(sequence_id).blocks):
            if block in self._sources and self._host.pool.num_references(block) == 1:
                del self._late[self._sources.pop(block)]
                self._host.withdraw(block)
            self._host.release(block)

    # --- the books ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the books balance. O(blocks)."""
        self._host.check(references(self.tables))
        assert {host: device for device, host in self._late.items()} == self._sources, "each way"
        held = distinct(self.tables, self.tables)
        assert self._sources.keys() <= held, "a place is kept for a sequence"
        for device_block, host_block in self._late.items():
            prefix = self._device.prefix_of(device_block)
            assert prefix is not None, "the content of late copies is on the device"
            assert self._host.find(prefix) == host_block, "and will be found where it goes"


def _known(table: SequenceBlocks) -> Iterable[tuple[int, Prefix]]:
    """Its full and computed blocks, and the prefix that ends in each."""
    return zip(table.blocks, chain_of(table.prefix), strict=False)
