"""Sequences of one model on the device and at a receiver: where they grow, and how they move between the two.

(Weaver, ATC'25, §4.3: blocks go over once, and what leaves the device is free when the plan is made.)
"""

from __future__ import annotations

from collections import Counter

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockCopy, BlockMove
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.device.device_blocks import DeviceBlocks, SequenceBlocks, references
from gpu_node.engine.memory.device.remote_blocks import RemoteBlocks
from gpu_node.engine.memory.prefix import Digest


class PlacedSequences(DeviceBlocks):
    """Tables of the device, and of the receiver where there is one."""

    def __init__(self, model: LoadedModel, device: PageArena, digest: Digest) -> None:
        """As `DeviceBlocks`; without a receiver."""
        super().__init__(model, device, digest)
        self.remote = RemoteBlocks(0)
        self._left: list[int] = []  # blocks of the device whose content is sent by the plan that is made

    # --- they grow ----------------------------------------------------------------------------------------------------

    def num_new_blocks(self, sequence_id: int, start: int, end: int) -> int:
        """Free blocks that `append` will take to write positions ``start`` to ``end`` (exclusive), where it lies."""
        if self.remote.has(sequence_id):
            return max(0, self._num_blocks_for(end) - len(self.remote.table(sequence_id)))
        blocks = self._tables[sequence_id].blocks
        num_copied = sum(self._device.num_references(block) > 1 for block in blocks[start // self.block_size :])
        return num_copied + max(0, self._num_blocks_for(end) - len(blocks))

    def append(self, sequence_id: int, start: int, end: int) -> tuple[BlockCopy, ...]:
        """Give the sequence blocks of its own for positions ``start`` to ``end`` (exclusive).

        Returns the copies to make before the write. The caller has seen to it that enough blocks are free.
        """
        if self.remote.has(sequence_id):
            self.remote.grow(sequence_id, self._num_blocks_for(end))
            return ()
        blocks = self._tables[sequence_id].blocks
        copies = []
        for index in range(start // self.block_size, len(blocks)):
            block = blocks[index]
            if self._device.num_references(block) > 1:
                blocks[index] = self._device.take()
                self._release(block)
                if index * self.block_size < start:  # else nothing in it is this sequence's yet
                    copies.append(BlockCopy(block, blocks[index]))
            assert blocks[index] not in self._prefixes, "a block offered for reuse is never written again"
        while len(blocks) < self._num_blocks_for(end):
            blocks.append(self._device.take())
        return tuple(copies)

    def trim(self, sequence_id: int, num_tokens: int) -> None:
        """Free the blocks of a sequence on the device behind those of its first ``num_tokens``: nothing is there."""
        blocks = self._tables[sequence_id].blocks
        while len(blocks) > self._num_blocks_for(num_tokens):
            self._release(blocks.pop())

    # --- to a receiver and back ---------------------------------------------------------------------------------------

    def connect(self, blocks_per_page: int) -> None:
        """A receiver whose pages hold so many blocks of this model each."""
        if self.remote.blocks_per_page != blocks_per_page:
            assert self.remote.pages.num_granted == 0, "one receiver at a time"
            self.remote = RemoteBlocks(blocks_per_page)

    def disconnect(self) -> None:
        """There is no receiver any more. No sequence lies there."""
        assert self.remote.num_used == 0, "what lies there was forgotten"
        self.remote = RemoteBlocks(0)

    def has_room(self, sequence_id: int, start: int, end: int) -> bool:
        """Whether enough blocks are free where the sequence lies to write positions ``start`` to ``end``."""
        num_new_blocks = self.num_new_blocks(sequence_id, start, end)
        if num_new_blocks == 0:  # nearly always: each sequence of each step asks
            return True
        return num_new_blocks <= (self.remote.num_free if self.remote.has(sequence_id) else self._device.num_free)

    def can_send(self, sequence_id: int) -> bool:
        """Whether the receiver has room for what has not gone ahead of a sequence on the device."""
        num_left = len(self._tables[sequence_id].blocks) - self.remote.num_ahead(sequence_id)
        return num_left <= self.remote.num_free

    def send_ahead(self, sequence_id: int, num_computed_tokens: int) -> list[BlockMove]:
        """Copies of full blocks that steps have computed, to make before the step that is planned."""
        blocks = self._tables[sequence_id].blocks
        return self.remote.send_ahead(sequence_id, blocks, min(num_computed_tokens // self.block_size, len(blocks)))

    def send(self, sequence_id: int) -> list[BlockMove]:
        """Move a sequence to the receiver; the moves to make before the step.

        What it leaves is free after `settle`, since other blocks are filled for the same step. Full blocks stay cached.
        """
        table = self._tables.pop(sequence_id)
        self._left += table.blocks
        return self.remote.send(sequence_id, table.blocks)

    def call_back(self, sequence_id: int) -> list[BlockMove]:
        """Move a sequence back to the device; the moves to make before the step. Enough blocks are free."""
        moves = [BlockMove(self._device.take(), block) for block in self.remote.call_back(sequence_id)]
        self._tables[sequence_id] = SequenceBlocks(
            [move.device_block for move in moves], self._root_of(sequence_id), 0, comes=True
        )
        return moves

    def settle(self) -> list[int]:
        """The plan is made: what its moves leave is free. Pages of the receiver that are given back by that."""
        for block in reversed(self._left):
            self._release(block)
        self._left.clear()
        return self.remote.settle()

    def _check_device(self) -> None:
        """Assert that the books of the device and of the receiver balance. O(blocks)."""
        self._device.check()
        self.remote.check()
        held = references(self._tables) + Counter(self._left)
        assert self._device.num_used == len(held), "used blocks are in tables"
        assert all(self._device.num_references(block) == count for block, count in held.items()), (
            "counts are references"
        )
        self._prefixes.check()
        offered = [block for block in self._device.free_blocks if block in self._prefixes]
        assert offered == self._device.kept_blocks, "a free block is kept for what it holds"
