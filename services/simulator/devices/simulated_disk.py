"""An SSD that is not there: the folder and the thread of `gpu_node.engine.tiers.kv_store` in virtual time.

Blocks have no content. Reads follow one another at the rate of the disk, and so do writes beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from gpu_node.engine.tiers.block_jobs import BlockJob, Done, EarlierBlocks

READ_BYTES_PER_S = 6.9e9
WRITE_BYTES_PER_S = 4.1e9
"""NVMe drive of a server: Samsung PM9A3 data sheet (3.84 TB), sequential."""


class SimulatedDisk:
    """Of one node; ``clock`` is virtual time."""

    path = PurePath("simulated")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[bool, list[tuple[float, BlockJob]]] = {True: [], False: []}  # reads and writes, as they end
        self._cancelled: list[BlockJob] = []

    # --- as a folder ------------------------------------------------------------------------------------------------

    def segments(self) -> list[tuple[int, int]]:
        """It begins empty."""
        return []

    def num_bytes(self, segment: int, slot_bytes: int) -> int:
        """There is none."""
        raise AssertionError(f"nothing was left in segment {segment} of {slot_bytes} bytes a slot")

    def remove(self, segment: int, slot_bytes: int) -> None:
        """Nothing is there."""
        raise AssertionError(f"no segment {segment} of slots of {slot_bytes} bytes")

    # --- as a thread ------------------------------------------------------------------------------------------------

    def ask(self, job: BlockJob) -> None:
        """It takes its time behind those of its kind before it."""
        jobs, now = self._jobs[job.is_read], self._clock()
        per_s = READ_BYTES_PER_S if job.is_read else WRITE_BYTES_PER_S
        begins_s = max(now, jobs[-1][0]) if jobs else now
        jobs.append((begins_s + job.slot.slot_bytes / per_s, job))

    def answers(self, wait_s: float = 0.0) -> Sequence[Done | EarlierBlocks]:
        """What is over by now: virtual time does not pass while the engine waits."""
        del wait_s
        now = self._clock()
        done = [Done(job, is_cancelled=True) for job in self._cancelled]
        self._cancelled = []
        for jobs in self._jobs.values():
            num_over = next((number for number, (end_s, _) in enumerate(jobs) if end_s > now), len(jobs))
            done += [Done(job) for _, job in jobs[:num_over]]
            del jobs[:num_over]
        return done

    def cancel(self, owner: object) -> None:
        """Drop the owner's jobs."""
        for is_read, jobs in self._jobs.items():
            self._cancelled += [job for _, job in jobs if job.owner is owner]
            self._jobs[is_read] = [one for one in jobs if one[1].owner is not owner]

    def settle(self, timeout_s: float | None = None) -> bool:
        """Whether nothing is left to do: as with `answers`, the caller does not wait."""
        del timeout_s
        return not any(self._jobs.values())

    def close(self) -> None:
        """What is queued is lost."""
        self._jobs = {True: [], False: []}


class NoMemory:
    """Host memory without content."""

    def host_block(self, model: str, block: int) -> Sequence[memoryview]:
        """Nothing to read or fill."""
        del model, block
        return ()
