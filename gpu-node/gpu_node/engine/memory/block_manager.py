"""KV memory in blocks: who holds which block, what can be reused, what is given up first.

A sequence has a table of blocks; position p lies in ``table[p // block_size]``. Blocks are shared by reference count
(common prefixes, forks) and copied before a write to a shared one. A block that nobody holds stays in the free list
with its content until it is taken, least recently used first; a sequence with the same beginning takes it back.
Sequences that have to wait may move to blocks in host memory and come back to other ones on the device. Copies of full
blocks may stay in host memory (`HostCache`), from where a prefix comes back that the device has given up.

Integers only: the same object plans for a GPU, a CPU and the simulator. (PagedAttention, SOSP'23, §4.2-4.5.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockCopy, BlockMove, BlockSwap, StepPlan
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.awaited_prefixes import AwaitedPrefixes
from gpu_node.engine.memory.block_log import FoundBlocks
from gpu_node.engine.memory.device_blocks import DeviceBlocks, SequenceBlocks, distinct, references
from gpu_node.engine.memory.host_cache import HostCache
from gpu_node.engine.memory.prefix import Digest, chain_of, token_blocks
from gpu_node.engine.memory.remote_blocks import RemoteBlocks
from gpu_node.engine.memory.tier_lookup import BroughtIn, TierLookup
from shared.messages.prefixes import chained_digest
from shared.messages.tiers import Tier


class BlockManager(DeviceBlocks):
    """All blocks of one model on one device. A model loaded anew has a new one: no old content is reachable."""

    def __init__(
        self,
        model: LoadedModel,
        device: PageArena,
        host: PageArena,
        digest: Digest = chained_digest,
        *,
        caches_in_host: bool = False,
        has_store: bool = False,
    ) -> None:
        """Blocks are cut from pages of ``device`` and, for what is swapped out or copied out, of ``host``.

        One sequence of full length always finds room on the device, whatever other models hold. Raises
        `ArenaFullError` while they hold too much for that. ``caches_in_host``, ``has_store``: as `HostCache`.
        """
        assert (device.num_pages, host.num_pages) == (model.num_pages, model.num_host_pages), "cut from these pages"
        super().__init__(model, device, digest)
        self.salt = model.salt
        self._swapped_out: dict[int, SequenceBlocks] = {}  # their blocks are the host's
        heard = self.log.of(Tier.HOST)
        self.host = HostCache(model, host, self._chains, heard, caches=caches_in_host, has_store=has_store)
        self.arrivals = AwaitedPrefixes()
        self.lookup = TierLookup(self._prefixes, self.host, model.block_size)
        self._caches_in_host = caches_in_host
        self.remote = RemoteBlocks(0)
        self._left: list[int] = []  # blocks of the device whose content is sent by the plan that is made
        self._host = self.host.pool

    @classmethod
    def alone(
        cls,
        num_blocks: int,
        block_size: int,
        model: str,
        num_host_blocks: int = 0,
        digest: Digest = chained_digest,
        *,
        caches_in_host: bool = False,
        has_store: bool = False,
    ) -> BlockManager:
        """For a model that shares its memory with no other."""
        assert num_blocks > 0
        alone = LoadedModel(
            model, num_blocks, block_size, 0, block_size, 0, frozenset(), num_host_blocks=num_host_blocks
        )
        return cls(alone, PageArena(1), PageArena(1), digest, caches_in_host=caches_in_host, has_store=has_store)

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def num_used_host_blocks(self) -> int:
        """Blocks of host memory that swapped-out sequences hold."""
        return len(distinct(self._swapped_out, self._swapped_out))

    def table(self, sequence_id: int) -> Sequence[int]:
        """Blocks of a sequence, in the order of its positions; the host's while it is swapped out, or the receiver's.

        A view: not to be changed or kept.
        """
        if self.remote.has(sequence_id):
            return self.remote.table(sequence_id)
        tables = self._swapped_out if sequence_id in self._swapped_out else self._tables
        return tables[sequence_id].blocks

    def found(self) -> FoundBlocks:
        """All cached prefixes, on the device and in host memory."""
        yield from ((Tier.DEVICE, digest) for digest in self._prefixes.digests())
        yield from ((Tier.HOST, digest) for digest in self.host.digests())

    # --- the life of a sequence ---------------------------------------------------------------------------------------

    def open(self, sequence_id: int, token_ids: Sequence[int]) -> int:
        """Begin a table with the cached prefix of ``token_ids``; returns the number of tokens that it covers."""
        assert not self._is_known(sequence_id)
        blocks = self.match(token_ids)
        for block in blocks:
            self._device.hold(block)
        prefix = self._prefixes.prefix_of(blocks[-1]) if blocks else self._prefixes.root
        assert prefix is not None
        if self._caches_in_host:
            self.lookup.touch_in_host(prefix)
        self._tables[sequence_id] = SequenceBlocks(blocks, prefix, len(blocks))
        return len(blocks) * self.block_size

    def bring_in(self, sequence_id: int, token_ids: Sequence[int]) -> BroughtIn:
        """More of the cached prefix of ``token_ids``, behind what `open` found: from host memory, and what follows it.

        As far as blocks are free, and short of the last token. What comes is offered for reuse at once: it is there
        before anything reads it, if nothing of the same step does.
        """
        if not self._caches_in_host:
            return BroughtIn()
        table = self._tables[sequence_id]
        found = self.lookup.behind(table.prefix, table.num_known, token_ids)
        on_device = [one.device_block for one in found if one.device_block is not None]
        for block in on_device:
            self._device.hold(block)
        swaps: list[BlockSwap] = []
        num_before, num_from_store = table.num_known, 0
        for one in found:
            if one.host_block is None:
                table.blocks.append(on_device.pop(0))
            elif self._device.num_free:
                swaps.append(BlockSwap(self._device.take(), one.host_block))
                num_from_store += self.host.use(one.host_block)
                table.blocks.append(swaps[-1].device_block)
            else:
                break
            self._offer(table, one.token_ids)
        for block in reversed(on_device):
            self._release(block)
        num_tokens = (table.num_known - num_before) * self.block_size
        return BroughtIn(tuple(swaps), num_tokens, num_from_store * self.block_size)

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

    def publish(self, sequence_id: int, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Offer the sequence's full blocks for reuse, now that their keys and values are computed.

        Of a sequence that was swapped out or sent away meanwhile, they are offered by the next call after it is back.
        """
        if sequence_id in self._swapped_out or self.remote.has(sequence_id):
            return
        table = self._tables[sequence_id]
        if table.comes:
            return
        while (end := (table.num_known + 1) * self.block_size) <= num_computed_tokens:
            block = self._offer(table, tuple(token_ids[end - self.block_size : end]))
            if self._caches_in_host and self._prefixes.prefix_of(block) is table.prefix:
                self.host.note(block, table.prefix)

    def free(self, sequence_id: int) -> None:
        """End a table, here or in host memory. Last block first, so that a prefix is given up from its tail on."""
        is_remote = self.remote.has(sequence_id)
        self.remote.free(sequence_id)
        if is_remote:
            return
        swapped = self._swapped_out.pop(sequence_id, None)
        if swapped is not None:
            for block in swapped.blocks:
                self._host.release(block)
            return
        for block in reversed(self._tables.pop(sequence_id).blocks):
            self._release(block)

    # --- to host memory and back --------------------------------------------------------------------------------------

    def is_swapped_out(self, sequence_id: int) -> bool:
        """Whether the sequence's blocks are in host memory."""
        return sequence_id in self._swapped_out

    @property
    def num_free_host_blocks(self) -> int:
        """Of host memory, those of pages that other models lend included."""
        return self._host.num_free

    def can_swap_out(self, sequence_ids: Collection[int]) -> bool:
        """Whether host memory has room for all blocks of these sequences together."""
        return self.num_distinct_blocks(sequence_ids) <= self._host.num_free

    def swap_out(self, sequence_ids: Collection[int]) -> tuple[BlockSwap, ...]:
        """Move the sequences of a request to host memory; the moves to make before the step, one for each block.

        Blocks that they share stay shared. Content offered for reuse stays cached on the device until it is taken.
        Not after `append` for the same step: its copies would not be made yet. Not after `swap_in` for the same step:
        a plan's moves out are made first.
        """
        moves: dict[int, int] = {}
        for sequence_id in sequence_ids:
            table = self._tables.pop(sequence_id)
            self.remote.free(sequence_id)  # what has gone ahead
            blocks = self._host.take_for(table.blocks, moves)
            for block in reversed(table.blocks):
                self._release(block)
            self._swapped_out[sequence_id] = SequenceBlocks(blocks, table.prefix, table.num_known)
        self.host.lend(moves.values())
        return tuple(BlockSwap(device_block, host_block) for device_block, host_block in moves.items())

    def num_swap_in_blocks(self, sequence_ids: Collection[int]) -> int:
        """Free blocks that `swap_in` will take: none for what another sequence holds on the device."""
        cached = self._still_cached(sequence_ids)
        num_moved = len(distinct(self._swapped_out, sequence_ids)) - len(cached)
        return num_moved + sum(not self.is_held(block) for block in set(cached.values()))

    def swap_in(self, sequence_ids: Collection[int]) -> tuple[BlockSwap, ...]:
        """Bring the sequences of a request back, sharing what they shared; the moves to make before the step.

        What is cached on the device still is taken over: none of it moves. What is full and computed is offered for
        reuse at once: it is there before anything reads it. The caller has seen to it that enough blocks are free.
        """
        cached = self._still_cached(sequence_ids)
        for block in cached.values():
            self._device.hold(block)  # until the tables are made: nothing of it is given up for the others
        moves = dict(cached)
        self.host.lend(distinct(self._swapped_out, sequence_ids) - cached.keys())
        for sequence_id in sequence_ids:
            swapped = self._swapped_out.pop(sequence_id)
            table = SequenceBlocks(self._device.take_for(swapped.blocks, moves), self._prefixes.root, 0)
            for block in swapped.blocks:
                self._host.release(block)
            for token_ids in token_blocks(swapped.prefix):
                self._offer(table, token_ids)
            self._tables[sequence_id] = table
        for block in cached.values():
            self._release(block)
        moved = [(device, host) for host, device in moves.items() if host not in cached]
        return tuple(BlockSwap(device_block, host_block) for device_block, host_block in moved)

    def _still_cached(self, sequence_ids: Collection[int]) -> dict[int, int]:
        """Of the host's blocks of these sequences, those whose content is on the device too, and where."""
        found: dict[int, int] = {}
        for swapped in map(self._swapped_out.__getitem__, sequence_ids):
            for block, prefix in zip(swapped.blocks, chain_of(swapped.prefix), strict=False):
                if (device_block := self._prefixes.find(prefix)) is not None:
                    found.setdefault(block, device_block)
        return found

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
        num_free = self.remote.num_free if self.remote.has(sequence_id) else self._device.num_free
        return num_new_blocks == 0 or num_new_blocks <= num_free

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
            [move.device_block for move in moves], self._prefixes.root, 0, comes=True
        )
        return moves

    def arrive(self, sequence_id: int) -> None:
        """The step that called a sequence back has run, and lost nothing; the sequence may have left since."""
        table = self._tables.get(sequence_id) or self._swapped_out.get(sequence_id)
        if table is not None:
            table.comes = False

    def settle(self) -> list[int]:
        """The plan is made: what its moves leave is free. Pages of the receiver that are given back by that."""
        for block in reversed(self._left):
            self._release(block)
        self._left.clear()
        return self.remote.settle()

    # --- back from an image -------------------------------------------------------------------------------------------

    def restore(
        self,
        sequence_id: int,
        places: Sequence[int],
        token_ids: Sequence[int],
        num_computed_tokens: int,
        moves: dict[int, int],
    ) -> list[int]:
        """Begin a table for a sequence with so many computed tokens, whose blocks an image has in ``places``.

        ``moves`` maps the places of a request's image to blocks and grows from sequence to sequence, so that what they
        shared stays shared. Returns the places to write before the step: the others are cached on the device still.
        What is full is offered for reuse at once. The caller has seen to it that a block is free for each place.
        """
        assert not self._is_known(sequence_id)
        for place, block in zip(places, self.match(token_ids[: num_computed_tokens + 1]), strict=False):
            moves.setdefault(place, block)
        unwritten = [place for place in places if place not in moves]
        self._tables[sequence_id] = SequenceBlocks(self._device.take_for(places, moves), self._prefixes.root, 0)
        self.publish(sequence_id, token_ids, num_computed_tokens)
        return unwritten

    # --- copies of full blocks ----------------------------------------------------------------------------------------

    def copies_out(self) -> list[BlockSwap]:
        """Copies of full blocks to host memory, for the plan that is ready otherwise; it makes them before all else."""
        return self.host.copies_out(self._prefixes)

    def end(self, plan: StepPlan) -> None:
        """A step has run, with all of its moves."""
        self.host.end(plan)

    # --- the end, and the books ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give all pages back. No sequence may be left."""
        assert not self._tables, "sequences hold blocks"
        assert not self._swapped_out, "sequences are swapped out"
        self._device.close()
        self.host.close()

    def check(self) -> None:
        """Assert that the books balance. O(blocks)."""
        self._device.check()
        self.remote.check()
        held = references(self._tables) + Counter(self._left)
        assert self._device.num_used == len(held), "used blocks are in tables"
        assert all(self._device.num_references(block) == count for block, count in held.items()), (
            "counts are references"
        )
        self.host.check(references(self._swapped_out))
        for tables in (self._tables, self._swapped_out):
            assert all(len(set(table.blocks)) == len(table.blocks) for table in tables.values()), "owned twice"
        assert not self._tables.keys() & self._swapped_out.keys(), "here or there"
        self._prefixes.check()
        offered = [block for block in self._device.free_blocks if block in self._prefixes]
        assert offered == self._device.kept_blocks, "a free block is kept for what it holds"

    def _is_known(self, sequence_id: int) -> bool:
        return sequence_id in self._tables or sequence_id in self._swapped_out or self.remote.has(sequence_id)
