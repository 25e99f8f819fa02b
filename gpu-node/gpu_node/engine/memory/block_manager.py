"""KV memory in blocks: which sequence holds which block, what can be reused, what is given up first.

A sequence has a table of blocks; position p lies in ``table[p // block_size]``. Blocks are shared by reference count
(common prefixes, forks) and copied before a write to a shared one. A block that is not held stays in the free list with
its content until it is taken, least recently used first; a sequence with the same beginning takes it back. Sequences
that have to wait may move to blocks in host memory and come back to other ones on the device (`SwapSpace`). Copies of
full blocks may stay there (`HostCache`), from where a prefix comes back that the device has given up.

Integers only: the same object plans for a GPU, a CPU and the simulator. (PagedAttention, SOSP'23, §4.2-4.5.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockSwap, StepPlan
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.awaited_prefixes import AwaitedPrefixes
from gpu_node.engine.memory.block_log import FoundBlocks
from gpu_node.engine.memory.device.device_blocks import BlockPlace, SequenceBlocks, distinct
from gpu_node.engine.memory.device.placed_sequences import PlacedSequences
from gpu_node.engine.memory.prefix import Digest, token_blocks, unheard
from gpu_node.engine.memory.tiers.host_cache import HostCache
from gpu_node.engine.memory.tiers.swap_space import SwapSpace
from gpu_node.engine.memory.tiers.tier_lookup import BroughtIn, TierLookup
from shared.config.engines.engine import SwapCopies
from shared.messages.memory.tiers import Tier
from shared.messages.prefixes.prefixes import chained_digest


class BlockManager(PlacedSequences):
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
        swap_copies: SwapCopies = "at_once",
    ) -> None:
        """Blocks are cut from pages of ``device`` and, for what is swapped out or copied out, of ``host``.

        One sequence of full length always finds room on the device, whatever other models hold. Raises
        `ArenaFullError` while they hold too much for that. ``caches_in_host``, ``has_store``: as `HostCache`;
        ``swap_copies``: as `SwapSpace`.
        """
        assert (device.num_pages, host.num_pages) == (model.num_pages, model.num_host_pages), "cut from these pages"
        super().__init__(model, device, digest)
        self.salt = model.salt
        self.host = HostCache(
            model,
            host,
            self._chains,
            self.log.of(Tier.HOST) if caches_in_host else unheard,
            caches=caches_in_host,
            has_store=has_store,
        )
        self.swapped = SwapSpace(self._prefixes, self.host, swap_copies)
        self.arrivals = AwaitedPrefixes()
        self.lookup = TierLookup(self._prefixes, self.host, model.block_size)
        self._caches_in_host = caches_in_host

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
        swap_copies: SwapCopies = "at_once",
    ) -> BlockManager:
        """For a model that shares its memory with no other."""
        assert num_blocks > 0
        alone = LoadedModel(
            model, num_blocks, block_size, 0, block_size, 0, frozenset(), num_host_blocks=num_host_blocks
        )
        return cls(
            alone,
            PageArena(1),
            PageArena(1),
            digest,
            caches_in_host=caches_in_host,
            has_store=has_store,
            swap_copies=swap_copies,
        )

    def renew(self, model: LoadedModel) -> None:
        """The model has other adapters from now on. What a store keeps of it has other names then."""
        if model.salt != self.salt:
            self.salt = model.salt
            self.log.renew()

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def num_used_host_blocks(self) -> int:
        """Blocks of host memory that swapped-out sequences hold."""
        return self.swapped.num_used_blocks

    def table(self, sequence_id: int) -> Sequence[int]:
        """Blocks of a sequence, in the order of its positions; the host's while it is swapped out, or the receiver's.

        A view: not to be changed or kept.
        """
        if self.remote.has(sequence_id):
            return self.remote.table(sequence_id)
        tables = self.swapped.tables if sequence_id in self.swapped else self._tables
        return tables[sequence_id].blocks

    def places(self, sequence_id: int) -> list[BlockPlace]:
        """Where the content of a sequence's blocks is, which no receiver has."""
        if sequence_id not in self.swapped:
            return [BlockPlace(Tier.DEVICE, block) for block in self._tables[sequence_id].blocks]
        return self.swapped.places(sequence_id)

    def found(self) -> FoundBlocks:
        """All cached prefixes, on the device and in host memory."""
        yield from ((Tier.DEVICE, digest) for digest in self._prefixes.digests())
        if self._caches_in_host:
            yield from ((Tier.HOST, digest) for digest in self.host.digests())

    # --- the life of a sequence ---------------------------------------------------------------------------------------

    def open(self, sequence_id: int, token_ids: Sequence[int], owner: str = "") -> int:
        """Begin a table with the cached prefix of ``token_ids``; returns the number of tokens that it covers.

        ``owner``: of the sequence (`owner_of`); no other owner finds what is cached of it.
        """
        assert not self._is_known(sequence_id)
        if owner:
            self._owners[sequence_id] = owner
        blocks = self.match(token_ids, owner)
        for block in blocks:
            self._device.hold(block)
        prefix = self._prefixes.prefix_of(blocks[-1]) if blocks else self._root_of(sequence_id)
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

    def publish(self, sequence_id: int, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Offer the sequence's full blocks for reuse, now that their keys and values are computed.

        Of a sequence that was swapped out or sent away meanwhile, they are offered by the next call after it is back.
        """
        if sequence_id in self.swapped or self.remote.has(sequence_id):
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
        self._owners.pop(sequence_id, None)
        self.remote.free(sequence_id)
        if is_remote:
            return
        if sequence_id in self.swapped:
            self.swapped.give_back(sequence_id)
            return
        for block in reversed(self._tables.pop(sequence_id).blocks):
            self._release(block)

    # --- to host memory and back --------------------------------------------------------------------------------------

    def is_swapped_out(self, sequence_id: int) -> bool:
        """Whether the sequence's blocks are in host memory."""
        return sequence_id in self.swapped

    @property
    def num_free_host_blocks(self) -> int:
        """Of host memory, those of pages that other models lend included."""
        return self.host.pool.num_free

    def can_swap_out(self, sequence_ids: Collection[int]) -> bool:
        """Whether host memory has room for all blocks of these sequences together."""
        return self.swapped.has_room([self._tables[one] for one in sequence_ids])

    def num_copied_blocks(self, sequence_ids: Collection[int]) -> int:
        """Blocks of these sequences that `swap_out` will not move: host memory has them."""
        return self.swapped.num_copied_blocks([self._tables[one] for one in sequence_ids])

    def swap_out(self, sequence_ids: Collection[int]) -> tuple[BlockSwap, ...]:
        """Move the sequences of a request to host memory; the moves to make before the step, one for each block.

        Blocks that they share stay shared. Content offered for reuse stays cached on the device until it is taken; if
        copies are made late, it moves then (`moves_due`).
        Not after `append` for the same step: its copies would not be made yet. Not after `swap_in` for the same step:
        a plan's moves out are made first.
        """
        tables = {sequence_id: self._tables.pop(sequence_id) for sequence_id in sequence_ids}
        moves = self.swapped.take(tables)
        for sequence_id, table in tables.items():
            self.remote.free(sequence_id)  # what has gone ahead
            for block in reversed(table.blocks):
                self._release(block)
        return tuple(moves)

    def copy_all_out(self) -> bool:
        """Let the plan that is drafted make all copies that wait; whether there are any.

        For blocks that are written ahead of a plan (`restore`), and so of its moves.
        """
        return self.swapped.copy_all()

    def moves_due(self) -> list[BlockSwap]:
        """Moves out of what other content has taken the place of, for the plan that is drafted; it makes them first."""
        return self.swapped.due()

    def num_swap_in_blocks(self, sequence_ids: Collection[int]) -> int:
        """Free blocks that `swap_in` will take: none for what another sequence holds on the device."""
        cached = self.swapped.still_on_device(sequence_ids)
        num_moved = len(distinct(self.swapped.tables, sequence_ids)) - len(cached)
        return num_moved + sum(not self.is_held(block) for block in set(cached.values()))

    def swap_in(self, sequence_ids: Collection[int]) -> tuple[BlockSwap, ...]:
        """Bring the sequences of a request back, sharing what they shared; the moves to make before the step.

        What is cached on the device still is taken over: none of it moves. What is full and computed is offered for
        reuse at once: it is there before anything reads it. The caller has seen to it that enough blocks are free.
        """
        cached = self.swapped.still_on_device(sequence_ids)
        for block in cached.values():
            self._device.hold(block)  # until the tables are made: nothing of it is given up for the others
        moves = dict(cached)
        self.host.lend(distinct(self.swapped.tables, sequence_ids) - cached.keys())
        for sequence_id in sequence_ids:
            swapped = self.swapped.tables[sequence_id]
            table = SequenceBlocks(self._device.take_for(swapped.blocks, moves), self._root_of(sequence_id), 0)
            self.swapped.give_back(sequence_id)
            for token_ids in token_blocks(swapped.prefix):
                self._offer(table, token_ids)
            self._tables[sequence_id] = table
        for block in cached.values():
            self._release(block)
        moved = [(device, host) for host, device in moves.items() if host not in cached]
        return tuple(BlockSwap(device_block, host_block) for device_block, host_block in moved)

    def arrive(self, sequence_id: int) -> None:
        """The step that called a sequence back has run, and lost nothing; the sequence may have left since."""
        table = self._tables.get(sequence_id) or self.swapped.tables.get(sequence_id)
        if table is not None:
            table.comes = False

    # --- back from an image -------------------------------------------------------------------------------------------

    def restore(
        self,
        sequence_id: int,
        places: Sequence[int],
        token_ids: Sequence[int],
        num_computed_tokens: int,
        moves: dict[int, int],
        owner: str = "",
    ) -> list[int]:
        """Begin a table for a sequence with so many computed tokens, whose blocks an image has in ``places``.

        ``moves`` maps the places of a request's image to blocks and grows from sequence to sequence, so that what they
        shared stays shared. Returns the places to write before the step: the others are cached on the device still.
        What is full is offered for reuse at once. The caller has seen to it that a block is free for each place.
        """
        assert not self._is_known(sequence_id)
        if owner:
            self._owners[sequence_id] = owner
        for place, block in zip(places, self.match(token_ids[: num_computed_tokens + 1], owner), strict=False):
            moves.setdefault(place, block)
        unwritten = [place for place in places if place not in moves]
        self._tables[sequence_id] = SequenceBlocks(self._device.take_for(places, moves), self._root_of(sequence_id), 0)
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
        assert not self.swapped.tables, "sequences are swapped out"
        self._device.close()
        self.host.close()

    def check(self) -> None:
        """Assert that the books balance. O(blocks)."""
        self._check_device()
        self.swapped.check()
        for tables in (self._tables, self.swapped.tables):
            assert all(len(set(table.blocks)) == len(table.blocks) for table in tables.values()), "owned twice"
        assert not self._tables.keys() & self.swapped.tables.keys(), "here or there"

    def forget_cached(self) -> None:
        """What free blocks held is lost. No copy of it waits: no other model is here, or this one's were made."""
        assert not self.swapped.num_late_blocks, "content of sequences is lost"
        super().forget_cached()

    def _forget(self, block: int) -> None:
        super()._forget(block)
        self.swapped.leave(block)

    def _is_known(self, sequence_id: int) -> bool:
        return sequence_id in self._tables or sequence_id in self.swapped or self.remote.has(sequence_id)
