"""The blocks of one model that lie on another device, in pages which that device grants (Weaver, ATC'25, §4).

A remote sequence's blocks are its own: they are neither shared nor found again by their prefix. While a sequence is
still at home, its full blocks may go ahead one by one, as they are made; then it goes over with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpu_node.engine.border.plan import BlockMove
from gpu_node.engine.memory.device.block_pool import BlockPool
from gpu_node.engine.memory.device.leased_pages import LeasedPages


class RemoteBlocks:
    """The books of what lies on the receiver. What is left by a move is free when the plan is made (`settle`)."""

    def __init__(self, blocks_per_page: int) -> None:
        self.blocks_per_page = blocks_per_page
        """0 while there is no receiver."""
        self.pages = LeasedPages()
        self._pool = BlockPool(self.pages, blocks_per_page)
        self._tables: dict[int, list[int]] = {}
        self._ahead: dict[int, list[int]] = {}  # copies of the first blocks of sequences that are at home
        self._left: list[int] = []

    @property
    def num_free(self) -> int:
        """Blocks that could be taken now: none while pages are wanted back."""
        return 0 if self.pages.num_owed else self._pool.num_free

    @property
    def num_used(self) -> int:
        """Blocks that sequences hold, those that went ahead included."""
        return self._pool.num_used

    @property
    def num_sequences(self) -> int:
        """Sequences that lie here."""
        return len(self._tables)

    def has(self, sequence_id: int) -> bool:
        """Whether a sequence lies here."""
        return sequence_id in self._tables

    def table(self, sequence_id: int) -> list[int]:
        """Blocks of a sequence that lies here, by the receiver's numbers."""
        return self._tables[sequence_id]

    def num_ahead(self, sequence_id: int) -> int:
        """Blocks that have gone ahead of a sequence at home."""
        return len(self._ahead.get(sequence_id, ()))

    def send_ahead(self, sequence_id: int, blocks: Sequence[int], num_full: int) -> list[BlockMove]:
        """Copies of the first ``num_full`` of the ``blocks`` of a sequence, as far as blocks are free."""
        ahead = self._ahead.setdefault(sequence_id, [])
        moves = []
        while len(ahead) < num_full and self.num_free:
            ahead.append(self._pool.take())
            moves.append(BlockMove(blocks[len(ahead) - 1], ahead[-1]))
        return moves

    def send(self, sequence_id: int, blocks: Sequence[int]) -> list[BlockMove]:
        """What has not gone ahead follows, and the sequence lies here. The caller has seen to it that it has room."""
        moves = self.send_ahead(sequence_id, blocks, len(blocks))
        self._tables[sequence_id] = self._ahead.pop(sequence_id)
        assert len(self._tables[sequence_id]) == len(blocks), "there was room"
        return moves

    def grow(self, sequence_id: int, num_blocks: int) -> None:
        """Blocks for what a sequence writes next. The caller has seen to it that they are free."""
        table = self._tables[sequence_id]
        while len(table) < num_blocks:
            table.append(self._pool.take())

    def call_back(self, sequence_id: int) -> list[int]:
        """The sequence leaves; its blocks, which are not written before `settle`."""
        blocks = self._tables.pop(sequence_id)
        self._left += blocks
        return blocks

    def free(self, sequence_id: int) -> None:
        """Forget a sequence, or what has gone ahead of it."""
        for block in (*self._tables.pop(sequence_id, ()), *self._ahead.pop(sequence_id, ())):
            self._pool.release(block)

    def forget_ahead(self) -> None:
        """Nothing has gone ahead of any sequence."""
        for sequence_id in list(self._ahead):
            self.free(sequence_id)

    def settle(self) -> list[int]:
        """The plan is made: what was left is free. Pages that are given back by that."""
        for block in self._left:
            self._pool.release(block)
        self._left.clear()
        return self.pages.give_back()

    def check(self) -> None:
        """Assert that each block is held once."""
        self._pool.check()
        held = [block for blocks in (*self._tables.values(), *self._ahead.values(), self._left) for block in blocks]
        assert len(set(held)) == len(held) == self._pool.num_used, "held once"
        assert not self._tables.keys() & self._ahead.keys(), "here or ahead"
