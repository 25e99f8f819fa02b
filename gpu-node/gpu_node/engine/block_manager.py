"""KV memory in blocks: who holds which block, what can be reused, what is given up first.

A sequence has a table of blocks; position p lies in ``table[p // block_size]``. Blocks are shared by reference count
(common prefixes, forks) and copied before a write to a shared one. A block that nobody holds stays in the free list
with its content until it is taken, least recently used first; a sequence with the same beginning takes it back.

Integers only: the same object plans for a GPU, a CPU and the simulator. (PagedAttention, SOSP'23, §4.2-4.4.)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_node.engine.plan import BlockCopy
from gpu_node.engine.prefix import Digest, Prefix, chained_digest, is_same, root


@dataclass(slots=True)
class _Table:
    """Blocks of one sequence. ``prefix`` covers the first ``num_known`` of them: those that are full and computed."""

    blocks: list[int]
    prefix: Prefix
    num_known: int


class BlockManager:
    """All blocks of one model on one device. A model swap makes a new one: nothing of the old content is reachable."""

    def __init__(self, num_blocks: int, block_size: int, model: str, digest: Digest = chained_digest) -> None:
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._root = root(model)
        self._digest = digest
        self._tables: dict[int, _Table] = {}
        self._references = [0] * num_blocks
        # what a block holds for reuse; exactly these blocks are in _cached, by the digest of their content
        self._content: list[Prefix | None] = [None] * num_blocks
        self._cached: dict[bytes, int] = {}
        # doubly linked list and index in one: taking from the front and from the middle are both O(1)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return len(self._free)

    @property
    def free_blocks(self) -> list[int]:
        """Free blocks in the order in which they will be taken."""
        return list(self._free)

    def table(self, sequence_id: int) -> Sequence[int]:
        """Blocks of a sequence, in the order of its positions. A view: not to be changed or kept."""
        return self._tables[sequence_id].blocks

    def digest_of(self, block: int) -> bytes | None:
        """Digest of the prefix that ends in ``block``, the name by which other nodes know it; None if it has none."""
        content = self._content[block]
        return None if content is None else content.digest

    def match(self, token_ids: Sequence[int]) -> list[int]:
        """Blocks that hold the longest cached prefix of ``token_ids``, short of its last token.

        The last token is always computed, because its logits are wanted. Changes nothing.
        """
        blocks: list[int] = []
        prefix = self._root
        for end in range(self.block_size, len(token_ids), self.block_size):
            prefix = self._extend(prefix, token_ids, end)
            block = self._cached.get(prefix.digest)
            if block is None or not is_same(self._content[block], prefix):
                break
            blocks.append(block)
        return blocks

    def open(self, sequence_id: int, token_ids: Sequence[int]) -> int:
        """Begin a table with the cached prefix of ``token_ids``; returns the number of tokens that it covers."""
        assert sequence_id not in self._tables
        blocks = self.match(token_ids)
        for block in blocks:
            self._hold(block)
        prefix = self._content[blocks[-1]] if blocks else self._root
        assert prefix is not None
        self._tables[sequence_id] = _Table(blocks, prefix, len(blocks))
        return len(blocks) * self.block_size

    def num_new_blocks(self, sequence_id: int, start: int, end: int) -> int:
        """Free blocks that `append` will take to write positions ``start`` to ``end`` (exclusive)."""
        blocks = self._tables[sequence_id].blocks
        num_copied = sum(self._references[block] > 1 for block in blocks[start // self.block_size :])
        return num_copied + max(0, self._num_blocks_for(end) - len(blocks))

    def append(self, sequence_id: int, start: int, end: int) -> tuple[BlockCopy, ...]:
        """Give the sequence blocks of its own for positions ``start`` to ``end`` (exclusive).

        Returns the copies to make before the write. The caller has seen to it that enough blocks are free.
        """
        blocks = self._tables[sequence_id].blocks
        copies = []
        for index in range(start // self.block_size, len(blocks)):
            block = blocks[index]
            if self._references[block] > 1:
                blocks[index] = self._take()
                self._release(block)
                if index * self.block_size < start:  # else nothing in it is this sequence's yet
                    copies.append(BlockCopy(block, blocks[index]))
            assert self._content[blocks[index]] is None, "a block offered for reuse is never written again"
        while len(blocks) < self._num_blocks_for(end):
            blocks.append(self._take())
        return tuple(copies)

    def publish(self, sequence_id: int, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Offer the sequence's full blocks for reuse, now that their keys and values are computed."""
        table = self._tables[sequence_id]
        while (end := (table.num_known + 1) * self.block_size) <= num_computed_tokens:
            prefix = self._extend(table.prefix, token_ids, end)
            other = self._cached.get(prefix.digest)
            if other is None:
                block = table.blocks[table.num_known]
                self._content[block] = prefix
                self._cached[prefix.digest] = block
            elif is_same(content := self._content[other], prefix):
                assert content is not None
                prefix = content  # computed twice: go on from the one chain, so that `is_same` stays O(1)
            # else two prefixes have one digest: the first keeps it, this block is just not offered
            table.prefix = prefix
            table.num_known += 1

    def fork(self, parent_id: int, child_id: int) -> None:
        """Begin a table that shares all blocks of another sequence; whoever writes first copies."""
        assert child_id not in self._tables
        parent = self._tables[parent_id]
        for block in parent.blocks:
            self._hold(block)
        self._tables[child_id] = _Table(list(parent.blocks), parent.prefix, parent.num_known)

    def free(self, sequence_id: int) -> None:
        """End a table. Last block first, so that the tail of a prefix is given up before its head."""
        for block in reversed(self._tables.pop(sequence_id).blocks):
            self._release(block)

    def check(self) -> None:
        """Assert that the books balance. O(blocks)."""
        held = Counter(block for table in self._tables.values() for block in table.blocks)
        assert all(self._references[block] == held[block] for block in range(self.num_blocks)), "counts are references"
        assert set(self._free) == {block for block in range(self.num_blocks) if not held[block]}, "free is not held"
        assert len(self._free) + len(held) == self.num_blocks, "free + used = total"
        assert all(len(set(table.blocks)) == len(table.blocks) for table in self._tables.values()), "owned twice"
        offered = {content.digest: block for block, content in enumerate(self._content) if content is not None}
        assert offered == self._cached, "a digest leads to the block with that content"

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _extend(self, parent: Prefix, token_ids: Sequence[int], end: int) -> Prefix:
        block_token_ids = tuple(token_ids[end - self.block_size : end])
        return Prefix(parent, block_token_ids, self._digest(parent.digest, block_token_ids))

    def _hold(self, block: int) -> None:
        if self._references[block] == 0:
            del self._free[block]
        self._references[block] += 1

    def _take(self) -> int:
        """The free block that was used least recently; its content is lost."""
        block, _ = self._free.popitem(last=False)
        content = self._content[block]
        if content is not None:
            del self._cached[content.digest]
            self._content[block] = None
        self._references[block] = 1
        return block

    def _release(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] == 0:
            self._free[block] = None
            if self._content[block] is None:  # nothing is lost with it, so it goes first
                self._free.move_to_end(block, last=False)
