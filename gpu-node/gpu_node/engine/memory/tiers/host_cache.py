"""Full blocks of one model in host memory: copies of what was computed, found again by their prefix.

A block is copied out by the first plan behind the step that filled it, while its content is on the device for sure:
a plan's moves out come before anything else of it. It stays, as the one used most recently, until host memory is
needed for others. With a store below (an SSD), it is written there too; that reads and writes host memory beside the
device's queue. So each user of a block of host memory holds it: a step in flight that moves it, a write, a read.
(Tiered KV of conversations, LRU: NanoFlow, OSDI'25, §4.2.2.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockSwap, StepPlan
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.device.block_pool import BlockPool
from gpu_node.engine.memory.prefix import Chains, Heard, Prefix, PrefixCache


@dataclass(frozen=True, slots=True)
class HostBlock:
    """A block of host memory, and the prefix that ends in it."""

    block: int
    prefix: Prefix


class HostCache:
    """The books of it. Blocks come from the same pool as those of swapped-out sequences, which go first."""

    def __init__(
        self,
        model: LoadedModel,
        arena: PageArena,
        chains: Chains,
        heard: Heard,
        *,
        caches: bool,
        has_store: bool = False,
    ) -> None:
        """``chains`` are those of the device's prefixes. ``caches=False`` keeps nothing.

        ``has_store``: what is copied out is written to a store, and comes back.
        """
        assert caches or not has_store
        self._prefixes = PrefixCache(chains, heard)
        self.pool = BlockPool(arena, model.host_blocks_per_page, forget=self._forget)
        self.caches = caches
        self._has_store = has_store
        self._made: dict[int, Prefix] = {}  # by block of the device: full since the last plan
        self._lent: Counter[int] = Counter()  # to steps and the store
        self._lent_to_draft: list[int] = []
        self._copying: dict[int, Prefix] = {}  # by step in flight
        self._copied: list[HostBlock] = []  # held until `release_copy`
        self._reading: dict[bytes, HostBlock] = {}
        self._from_store: set[int] = set()  # read, and not used since
        self._is_closed = False
        self.num_lost = 0
        """Full blocks that were not copied out: host memory had no room, or the device none for them any more."""

    @property
    def num_cached_blocks(self) -> int:
        """Blocks of host memory in which a prefix is found."""
        return len(self._prefixes)

    def digests(self) -> Iterable[bytes]:
        """Of all prefixes that are found."""
        return self._prefixes.digests()

    def find(self, prefix: Prefix) -> int | None:
        """The block in which ``prefix`` is found; None if in none."""
        return self._prefixes.find(prefix)

    def is_reading(self, prefix: Prefix) -> bool:
        """Whether it is on its way from the store."""
        return prefix.digest in self._reading

    def touch(self, prefix: Prefix) -> None:
        """Where it is found, it is the one used most recently."""
        if (block := self._prefixes.find(prefix)) is not None:
            self.pool.hold(block)
            self.pool.release(block, keep=True)

    def offer(self, block: int, prefix: Prefix) -> bool:
        """Let ``prefix`` be found in a block that is held; whether it is."""
        self._prefixes.offer(block, prefix)
        return block in self._prefixes

    def withdraw(self, block: int) -> None:
        """What is found in a block that is held is not there."""
        self._forget(block)

    def release(self, block: int) -> None:
        """One reference of a sequence less; the last one frees it, with what is found in it."""
        self.pool.release(block, keep=block in self._prefixes)

    def use(self, block: int) -> bool:
        """The step that is planned brings ``block`` back to the device. Whether it came from the store, and is new."""
        self.lend([block])
        is_new = block in self._from_store
        self._from_store.discard(block)
        return is_new

    # --- out ----------------------------------------------------------------------------------------------------------

    def note(self, block: int, prefix: Prefix) -> None:
        """A block of the device is full and computed."""
        if self.caches:
            self._made[block] = prefix

    def copies_out(self, device: PrefixCache) -> list[BlockSwap]:
        """Copies of what became full since the last plan; to be made by this one. ``device`` says where it still is.

        The plan is ready otherwise: what it brings back from host memory is held until here, since its moves out, of
        which these are some, come before its moves in.
        """
        made, self._made = self._made, {}
        copies = []
        for block, prefix in made.items():
            if device.prefix_of(block) is not prefix:
                self.num_lost += 1
            elif self._prefixes.find(prefix) is None and (host_block := self._take_for(prefix)) is not None:
                copies.append(BlockSwap(block, host_block))
        lent, self._lent_to_draft = self._lent_to_draft, []
        if not self._has_store:  # from now on the order of the device's queue is enough
            for block in lent:
                self._give_back(block)
        return copies

    def _take_for(self, prefix: Prefix) -> int | None:
        if not self.pool.num_free:
            self.num_lost += 1
            return None
        block = self.pool.take()
        self._prefixes.offer(block, prefix)
        if block not in self._prefixes:  # another prefix has this digest
            self.pool.release(block)
            return None
        if self._has_store:
            self._copying[block] = prefix
        else:
            self._lent[block] += 1
            self._lent_to_draft.append(block)
        return block

    def pop_copied(self) -> list[HostBlock]:
        """Blocks whose content has come since the last call; each is held until `release_copy`."""
        copied, self._copied = self._copied, []
        for one in copied:
            self._lent[one.block] += 1
        return copied

    def release_copy(self, block: int) -> None:
        """The store has read it, or does not want it."""
        self._give_back(block)

    # --- steps in flight ----------------------------------------------------------------------------------------------

    def lend(self, blocks: Iterable[int]) -> None:
        """The step that is planned moves these blocks, which are held or found. They stay as they are until it ends."""
        if self.caches:
            for block in blocks:
                self.pool.hold(block)
                self._lent[block] += 1
                self._lent_to_draft.append(block)

    def end(self, plan: StepPlan) -> None:
        """A step has run: what it moved is where it belongs."""
        if not self._has_store or self._is_closed:
            return
        for swap in plan.moves_out:
            if (prefix := self._copying.pop(swap.host_block, None)) is not None:
                self._copied.append(HostBlock(swap.host_block, prefix))
            else:
                self._give_back(swap.host_block)
        for swap in plan.swaps_in:
            self._give_back(swap.host_block)

    def _give_back(self, block: int) -> None:
        if self._is_closed:
            return
        self._lent[block] -= 1
        if not self._lent[block]:
            del self._lent[block]
        self.pool.release(block, keep=block in self._prefixes)

    # --- back from the store ------------------------------------------------------------------------------------------

    def begin_read(self, prefix: Prefix) -> int | None:
        """A block to read ``prefix`` into; None without room."""
        assert prefix.digest not in self._reading
        if not self.pool.num_free:
            return None
        block = self.pool.take()
        self._reading[prefix.digest] = HostBlock(block, prefix)
        return block

    def end_read(self, digest: bytes, *, is_whole: bool) -> None:
        """It has been read, or is not what it should be."""
        if self._is_closed:
            return
        one = self._reading.pop(digest)
        if is_whole:
            self._prefixes.offer(one.block, one.prefix)
        is_found = one.block in self._prefixes
        if is_found:
            self._from_store.add(one.block)
        self.pool.release(one.block, keep=is_found)

    # --- the end, and the books ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything; the store neither reads nor writes it any more, and steps in flight tell in vain."""
        held = [*self._lent.elements(), *self._copying]
        held += [one.block for one in (*self._copied, *self._reading.values())]
        for block in held:
            self.pool.release(block, keep=block in self._prefixes)
        self._is_closed = True
        self.pool.close()

    def check(self, held: Counter[int]) -> None:
        """Assert that the books balance, where sequences hold the blocks in ``held``. O(blocks)."""
        self.pool.check()
        self._prefixes.check()
        own = Counter(self._lent)
        own.update(list(self._copying))
        own.update(one.block for one in (*self._copied, *self._reading.values()))
        both = held + own
        assert self.pool.num_used == len(both), "used blocks are in tables, or in use here"
        assert all(self.pool.num_references(block) == count for block, count in both.items()), "counts are references"
        kept = [block for block in self.pool.free_blocks if block in self._prefixes]
        assert kept == self.pool.kept_blocks, "a free block is kept for what it holds"
        assert all(block in self._prefixes for block in self._copying), "what is copied is found"
        assert all(block in self._prefixes for block in self._from_store), "what was read is found"
        reading = {one.block for one in self._reading.values()}
        assert not any(block in self._prefixes for block in reading), "what is not there yet is not found"
        assert len(reading) == len(self._reading), "a block is read into once"
        assert not reading & self._lent.keys(), "no step moves what is being read"

    def _forget(self, block: int) -> None:
        self._prefixes.forget(block)
        self._from_store.discard(block)
