"""The blocks of one model on its device: tables that share them, and what is cached in those that are free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.block_log import BlockLog
from gpu_node.engine.memory.device.block_pool import BlockPool
from gpu_node.engine.memory.prefix import Chains, Digest, Prefix, PrefixCache
from shared.messages.memory.tiers import Tier


@dataclass(slots=True)
class SequenceBlocks:
    """Blocks of one sequence. ``prefix`` covers the first ``num_known`` of them: those that are full and computed.

    While it ``comes`` back from a receiver, its content may be lost still, so nothing of it is offered for reuse.
    """

    blocks: list[int]
    prefix: Prefix
    num_known: int
    comes: bool = False


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Where the content of a block is."""

    tier: Tier
    block: int


class DeviceBlocks:
    """Which sequence holds which block of the device."""

    def __init__(self, model: LoadedModel, device: PageArena, digest: Digest) -> None:
        """Blocks are cut from pages of ``device``. Raises `ArenaFullError` as `BlockPool`."""
        self.num_blocks = model.num_blocks
        self.block_size = model.block_size
        self._num_reserved_pages = model.num_reserved_pages
        self.log = BlockLog()
        self._chains = Chains(digest)
        self._prefixes = PrefixCache(self._chains, self.log.of(Tier.DEVICE))
        self._tables: dict[int, SequenceBlocks] = {}
        self._owners: dict[int, str] = {}  # of sequences that have one
        self._device = BlockPool(device, model.blocks_per_page, model.num_reserved_pages, self._forget)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be taken now, those of pages that other models lend included."""
        return self._device.num_free

    @property
    def num_used_blocks(self) -> int:
        """Blocks that sequences hold."""
        return self._device.num_used

    @property
    def num_usable_blocks(self) -> int:
        """Used and free ones: what this model can have while other models hold what they do."""
        return self.num_used_blocks + self.num_free_blocks

    @property
    def num_taken_pages(self) -> int:
        """Pages that no other model can have: sequences hold blocks there, or the model has a right to them."""
        return max(self._device.num_held_pages, self._num_reserved_pages)

    @property
    def free_blocks(self) -> list[int]:
        """Free blocks of the pages that this model has, in the order in which they will be taken."""
        return self._device.free_blocks

    def match(self, token_ids: Sequence[int], owner: str = "") -> list[int]:
        """Blocks that hold the longest cached prefix of ``token_ids``, short of its last token.

        The last token is always computed, because its logits are wanted. ``owner``: of the tokens (`owner_of`). Changes
        nothing.
        """
        return self._prefixes.match(token_ids, self.block_size, owner)

    def fork(self, parent_id: int, child_id: int) -> None:
        """Begin a table that shares all blocks of another sequence; the first to write copies."""
        assert child_id not in self._tables
        parent = self._tables[parent_id]
        if parent_id in self._owners:
            self._owners[child_id] = self._owners[parent_id]
        for block in parent.blocks:
            self._device.hold(block)
        self._tables[child_id] = SequenceBlocks(list(parent.blocks), parent.prefix, parent.num_known)

    def is_held(self, block: int) -> bool:
        """Whether a sequence holds a block of the device; else it is free, with or without content."""
        return self._device.num_references(block) > 0

    def num_distinct_blocks(self, sequence_ids: Collection[int]) -> int:
        """Blocks of the device that these sequences hold, each once."""
        return len(distinct(self._tables, sequence_ids))

    def num_lasting_blocks(self, sequence_ids: Collection[int]) -> int:
        """Those of them that stay cached for sure when these are freed: other sequences hold them too."""
        own = Counter(block for sequence_id in sequence_ids for block in self._tables[sequence_id].blocks)
        shared = [block for block, count in own.items() if self._device.num_references(block) > count]
        return sum(block in self._prefixes for block in shared)

    def forget_cached(self) -> None:
        """What free blocks held is lost."""
        self._device.forget_kept()

    def _forget(self, block: int) -> None:
        """A block is taken for other content."""
        self._prefixes.forget(block)

    def _root_of(self, sequence_id: int) -> Prefix:
        """The empty prefix of the sequence's owner."""
        return self._prefixes.root_of(self._owners.get(sequence_id, ""))

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _offer(self, table: SequenceBlocks, token_ids: tuple[int, ...]) -> int:
        """One more block of a table is full and computed; that block."""
        prefix = self._prefixes.extend(table.prefix, token_ids)
        block = table.blocks[table.num_known]
        table.prefix = self._prefixes.offer(block, prefix)
        table.num_known += 1
        return block

    def _release(self, block: int) -> None:
        self._device.release(block, keep=block in self._prefixes)


def references(tables: Mapping[int, SequenceBlocks]) -> Counter[int]:
    """How many of these tables hold each block."""
    return Counter(block for table in tables.values() for block in table.blocks)


def distinct(tables: Mapping[int, SequenceBlocks], sequence_ids: Collection[int]) -> set[int]:
    """Blocks that these sequences hold, each once."""
    return {block for sequence_id in sequence_ids for block in tables[sequence_id].blocks}
