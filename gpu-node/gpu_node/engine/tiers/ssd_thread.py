"""The thread that reads and writes an engine's folder: no other thread touches it, and no step waits for it.

Its caller bounds how much is in its queues, and takes the answers in when it suits. Reads go first: a request waits for
them. A job reads or fills host memory in place, which its asker holds until the answer is in.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Condition, Thread

from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.block_jobs import BlockJob, Done, EarlierBlocks
from gpu_node.engine.tiers.record import HEADER_BYTES, DamagedError, check, decode, encode, header_of
from gpu_node.engine.tiers.ssd_folder import SsdFolder

END_TIMEOUT_S = 2.0
"""At the end, so long for blocks that are still to be written; then they are not."""


class SsdThread:
    """Begins by reading what the reopened segments hold."""

    def __init__(self, folder: SsdFolder, segments: Sequence[tuple[int, int]]) -> None:
        self._folder = folder
        self._reads: deque[BlockJob] = deque()
        self._writes: deque[BlockJob] = deque()
        self._running: BlockJob | None = None
        self._is_telling = True
        self._ends = False
        self._changed = Condition()
        self._answers: SimpleQueue[Done | EarlierBlocks] = SimpleQueue()
        self._thread = Thread(target=self._run, args=(list(segments),), name="kv-tiers", daemon=True)
        self._thread.start()

    def ask(self, job: BlockJob) -> None:
        """Queue a job."""
        with self._changed:
            (self._reads if job.is_read else self._writes).append(job)
            self._changed.notify_all()

    def answers(self, wait_s: float = 0.0) -> list[Done | EarlierBlocks]:
        """What has come to its end since the last call; the first of them is waited for, ``wait_s`` at most."""
        answers: list[Done | EarlierBlocks] = []
        try:
            answers.append(self._answers.get(timeout=wait_s) if wait_s else self._answers.get_nowait())
            while True:
                answers.append(self._answers.get_nowait())
        except Empty:
            return answers

    def cancel(self, owner: object) -> None:
        """Drop the owner's jobs; when this returns, none runs, and the answers to all of them are there."""
        with self._changed:
            for jobs in (self._reads, self._writes):
                dropped = [job for job in jobs if job.owner is owner]
                for job in dropped:
                    jobs.remove(job)
                    self._answers.put(Done(job, is_cancelled=True))
            self._changed.wait_for(lambda: self._running is None or self._running.owner is not owner)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until there is nothing to do; False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle, timeout_s)

    def close(self) -> None:
        """Write what is queued, as far as that is quick, and end."""
        self.settle(END_TIMEOUT_S)
        with self._changed:
            self._reads.clear()
            self._writes.clear()
            self._ends = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def _is_idle(self) -> bool:
        return not (self._reads or self._writes or self._is_telling) and self._running is None

    def _run(self, segments: list[tuple[int, int]]) -> None:
        told = self._tell(segments)
        with self._changed:
            self._answers.put(told)
            self._is_telling = False
            self._changed.notify_all()
        while (job := self._next()) is not None:
            done = self._do(job)
            with self._changed:
                self._answers.put(done)
                self._running = None
                self._changed.notify_all()

    def _next(self) -> BlockJob | None:
        with self._changed:
            self._changed.wait_for(lambda: self._reads or self._writes or self._ends)
            if self._ends:
                return None
            self._running = (self._reads or self._writes).popleft()
            return self._running

    def _tell(self, segments: list[tuple[int, int]]) -> EarlierBlocks:
        blocks: list[tuple[int, bytes, Slot]] = []
        errors = []
        for number, slot_bytes in segments:
            try:
                blocks += self._folder.headers(number, slot_bytes)
            except OSError as error:
                errors.append(str(error))
        blocks.sort(key=lambda one: one[0])
        return EarlierBlocks([(digest, slot) for _, digest, slot in blocks], "; ".join(errors[:1]))

    def _do(self, job: BlockJob) -> Done:
        started_s = time.perf_counter()
        act: Callable[[BlockJob], None] = self._read if job.is_read else self._write
        error, is_damaged = "", False
        try:
            act(job)
        except DamagedError:
            is_damaged = True
        except OSError as failure:
            error = str(failure)
        return Done(job, error, is_damaged, duration_s=time.perf_counter() - started_s)

    def _write(self, job: BlockJob) -> None:
        header = header_of(job.prefix, time.time_ns(), job.content)
        self._folder.write(job.slot, [memoryview(encode(header)), *job.content])

    def _read(self, job: BlockJob) -> None:
        data = bytearray(HEADER_BYTES)
        num_bytes = self._folder.read(job.slot, [memoryview(data), *job.content])
        if num_bytes < HEADER_BYTES + sum(piece.nbytes for piece in job.content):
            raise DamagedError("the file ends in it")
        check(decode(bytes(data)), job.prefix, job.content)
