"""The tier below host memory: full blocks of all models of an engine on its SSD.

What host memory has got is written behind the steps, as far as the queue has room; what a queued request could use is
read ahead of its turn. Whatever goes wrong is a miss: it is counted, and said once until it goes well again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Protocol

from gpu_node.engine.border.executor import HostMemory
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.counts import KeptCounts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.prefix import Prefix
from gpu_node.engine.memory.tiers.ssd_index import SsdIndex
from gpu_node.engine.tiers.block_jobs import BlockJob, Done, EarlierBlocks
from gpu_node.engine.tiers.record import salted, slot_bytes, stored
from gpu_node.engine.tiers.ssd_folder import segment_bytes
from shared.messages.memory.tiers import Tier

MAX_WRITES = 256
"""Blocks that wait to be written, or are; of those beyond, there is no copy."""
MAX_READS = 1024
"""Blocks that wait to be read, or are."""
HOST_SHARE = 2
"""One part in so many of host memory at most is held for writes, and as much for reads."""


class BlockFolder(Protocol):
    """Where the segments are."""

    @property
    def path(self) -> PurePath:
        """As operators know it."""
        ...

    def segments(self) -> list[tuple[int, int]]:
        """Number and bytes of a slot of each that is there."""
        ...

    def num_bytes(self, segment: int, slot_bytes: int) -> int:
        """How long one is."""
        ...

    def remove(self, segment: int, slot_bytes: int) -> None:
        """Delete one."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class BlockWorker(Protocol):
    """Reads and writes, as `gpu_node.engine.tiers.ssd_thread` does."""

    def ask(self, job: BlockJob) -> None:
        """Queue a job."""
        ...

    def answers(self, wait_s: float = 0.0) -> Sequence[Done | EarlierBlocks]:
        """What has come to its end since the last call."""
        ...

    def cancel(self, owner: object) -> None:
        """Drop the owner's jobs; the answers to all of them are there."""
        ...

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until there is nothing to do."""
        ...

    def close(self) -> None:
        """End."""
        ...


log = logging.getLogger(__name__)


class KvStore:
    """One engine's. Nothing here waits for the disk but `wait`, `settle`, `leave` and `close`."""

    def __init__(
        self,
        folder: BlockFolder,
        capacity_bytes: int,
        memory: HostMemory,
        begin: Callable[[Sequence[tuple[int, int]]], BlockWorker],
    ) -> None:
        """``memory`` is the executor's, where blocks are written from and read to.

        ``begin`` starts the worker that reads and writes, and tells first what the folder's segments hold.
        """
        self._folder = folder
        self._memory = memory
        self._index = SsdIndex(capacity_bytes, segment_bytes(capacity_bytes), self._gone)
        segments = []
        for number, size in folder.segments():
            fits = folder.num_bytes(number, size) <= self._index.segment_bytes
            if fits and self._index.reopen(number, size):
                segments.append((number, size))
            else:
                folder.remove(number, size)  # of a larger budget
        self._thread = begin(segments)
        self._blocks: dict[str, BlockManager] = {}
        self._num_writes = 0
        self._num_reads = 0
        self._is_failing = False
        self.counts = KeptCounts()

    @property
    def used_bytes(self) -> int:
        """Room that blocks take."""
        return self._index.used_bytes

    @property
    def num_blocks(self) -> int:
        """Blocks that could be read."""
        return self._index.num_found

    # --- models come and go -------------------------------------------------------------------------------------------

    def join(self, model: LoadedModel, blocks: BlockManager) -> None:
        """A model is loaded."""
        self._blocks[model.name] = blocks
        if slot_bytes(model.block_bytes) > self._index.segment_bytes:
            log.warning(
                "blocks of %r are not kept on the SSD: each takes %d bytes, and engine.tiers.ssd_bytes is cut into "
                "files of %d; raise it",
                model.name,
                slot_bytes(model.block_bytes),
                self._index.segment_bytes,
            )

    def found(self, model: LoadedModel) -> Iterator[bytes]:
        """Digests of prefixes of the model. Where another model's blocks are as large, their names mean nothing."""
        salt = self._blocks[model.name].salt
        return (salted(digest, salt) for digest in self._index.found(slot_bytes(model.block_bytes)))

    def _gone(self, digest: bytes) -> None:
        """It is unknown of which model; the names that it has for others stand for nothing."""
        for blocks in self._blocks.values():
            blocks.log.of(Tier.SSD)(salted(digest, blocks.salt), is_there=False)

    def leave(self, name: str) -> None:
        """A model's host memory is given up: when this returns, it is not read or filled for the store any more."""
        blocks = self._blocks.get(name)
        if blocks is not None:
            self._thread.cancel(blocks)
            self.take_in()
            del self._blocks[name]

    # --- what the engine does between steps ---------------------------------------------------------------------------

    def promote(self, model: LoadedModel, request_id: str, token_ids: Sequence[int], owner: str = "") -> None:
        """A request is queued: read what only the SSD has of its prefix."""
        blocks = self._blocks[model.name]
        chain, num_above = blocks.lookup.chain(token_ids, owner)
        for prefix in reversed(chain):
            self._index.touch(salted(prefix.digest, blocks.salt))
        awaited = []
        for prefix in chain[num_above:]:
            if not (blocks.host.is_reading(prefix) or self._begin_read(model, blocks, prefix)):
                break
            awaited.append(prefix.digest)
        blocks.arrivals.expect(request_id, awaited)

    def _begin_read(self, model: LoadedModel, blocks: BlockManager, prefix: Prefix) -> bool:
        kept = stored(prefix, blocks.salt)
        if self._num_reads >= min(MAX_READS, model.num_host_blocks // HOST_SHARE) or kept.digest not in self._index:
            return False
        host_block = blocks.host.begin_read(prefix)
        if host_block is None:
            return False
        slot = self._index.begin_read(kept.digest)
        assert slot is not None
        self._num_reads += 1
        content = self._memory.host_block(model.name, host_block)
        self._thread.ask(BlockJob(blocks, True, slot, kept, content, host_block))
        return True

    def write_copies(self, model: LoadedModel) -> None:
        """Write what has come to host memory."""
        blocks = self._blocks.get(model.name)
        if blocks is None:
            return  # the last step of a model that is gone
        size = slot_bytes(model.block_bytes)
        for one in blocks.host.pop_copied():
            slot, kept = None, stored(one.prefix, blocks.salt)
            if self._num_writes < min(MAX_WRITES, model.num_host_blocks // HOST_SHARE):
                slot = self._index.begin_write(kept.digest, size)
            if slot is None:
                blocks.host.release_copy(one.block)
                self._count(KeptCounts(num_unwritten=int(kept.digest not in self._index)))
                continue
            self._num_writes += 1
            content = self._memory.host_block(model.name, one.block)
            self._thread.ask(BlockJob(blocks, False, slot, kept, content, one.block))

    def take_in(self, wait_s: float = 0.0) -> None:
        """Fold in what the thread has done; its first answer is waited for, ``wait_s`` at most."""
        for answer in self._thread.answers(wait_s):
            if isinstance(answer, EarlierBlocks):
                self._index.tell(answer.blocks)
                for blocks in self._blocks.values():
                    blocks.log.renew()
                log.info("%d blocks of KV found in %s", len(answer.blocks), self._folder.path)
                self._hear(answer.error)
            else:
                self._end(answer)

    def _end(self, done: Done) -> None:
        job = done.job
        assert isinstance(job.owner, BlockManager)
        digest = salted(job.prefix.digest, job.owner.salt)
        if job.is_read:
            self._num_reads -= 1
            self._index.end_read(job.prefix.digest, is_whole=done.is_whole or done.is_cancelled)
            job.owner.host.end_read(digest, is_whole=done.is_whole)
            job.owner.arrivals.arrived(digest, done.duration_s)
        else:
            self._num_writes -= 1
            self._index.end_write(job.prefix.digest, is_whole=done.is_whole)
            job.owner.host.release_copy(job.host_block)
            if done.is_whole:
                job.owner.log.of(Tier.SSD)(digest, is_there=True)
        self._count(
            KeptCounts(
                num_read=int(job.is_read and done.is_whole),
                num_written=int(not job.is_read and done.is_whole),
                num_failed=int(bool(done.error)),
                num_damaged=int(done.is_damaged),
            )
        )
        if done.is_damaged:
            log.warning("a block of KV in %s was not what had been written; it is computed again", self._folder.path)
        if not done.is_cancelled:
            self._hear(done.error)

    def _hear(self, error: str) -> None:
        if error and not self._is_failing:
            log.warning("KV is not kept in %s, or not found there: %s", self._folder.path, error)
        elif self._is_failing and not error:
            log.info("KV is kept in %s again", self._folder.path)
        self._is_failing = bool(error)

    def _count(self, counts: KeptCounts) -> None:
        self.counts += counts

    # --- the end ------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until everything asked for is read and written; for tests and measurements."""
        self._thread.settle()
        self.take_in()

    def close(self) -> None:
        """Write what is queued, as far as that is quick; then another process may have the folder."""
        self._thread.close()
        self._folder.close()

    def check(self) -> None:
        """Assert that the books balance."""
        self._index.check()
