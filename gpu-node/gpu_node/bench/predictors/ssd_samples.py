"""What blocks take between host memory and the SSD: by the store's own thread and folder, in a folder beside nodes'."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from gpu_node.bench.predictors.cost_sample import CostSample
from gpu_node.bench.predictors.samples import BLOCKS, HELD_OUT_BLOCKS, NUM_REPEATS, sample_of
from gpu_node.engine.memory.prefix import Chains
from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.block_jobs import BlockJob, Done
from gpu_node.engine.tiers.record import slot_bytes
from gpu_node.engine.tiers.ssd_folder import SsdFolder
from gpu_node.engine.tiers.ssd_thread import SsdThread
from shared.errors import OperatorError


class SsdBenchError(OperatorError, RuntimeError):
    """The SSD did not do as it was told; the text says what the system said."""


def ssd_samples(parent: Path, block_bytes: int) -> list[CostSample]:
    """Of blocks of one piece, written and read again; nothing is left in ``parent``."""
    parent.mkdir(parents=True, exist_ok=True)
    found: list[CostSample] = []
    with (
        tempfile.TemporaryDirectory(prefix=".profile-", dir=parent) as scratch,
        closing(SsdFolder(Path(scratch))) as folder,
        closing(SsdThread(folder, [])) as thread,
    ):
        thread.settle()
        thread.answers()
        jobs = _jobs(max(*BLOCKS, *HELD_OUT_BLOCKS), block_bytes)
        for size, is_held_out in [(size, False) for size in BLOCKS] + [(size, True) for size in HELD_OUT_BLOCKS]:
            out_s, in_s = (
                [_took_s(thread, jobs[is_read][:size]) for _ in range(NUM_REPEATS + 1)] for is_read in (False, True)
            )
            found.append(sample_of("store_out", size, is_held_out, out_s[1:]))  # the first makes the file longer
            found.append(sample_of("store_in", size, is_held_out, in_s[1:]))
    return found


def _jobs(num_blocks: int, block_bytes: int) -> dict[bool, list[BlockJob]]:
    """To write blocks, and to read them again; each a prefix of its own."""
    chains, owner = Chains(), object()
    size = slot_bytes(block_bytes)
    content = [memoryview(bytearray(number.to_bytes(2, "little") * (block_bytes // 2))) for number in range(num_blocks)]
    return {
        is_read: [
            BlockJob(owner, is_read, Slot(0, number, size), chains.extend(chains.root, (number,)), [piece], number)
            for number, piece in enumerate(content)
        ]
        for is_read in (False, True)
    }


def _took_s(thread: SsdThread, jobs: list[BlockJob]) -> float:
    """From the first question to the last answer."""
    started_s = time.perf_counter()
    for job in jobs:
        thread.ask(job)
    thread.settle()
    took_s = time.perf_counter() - started_s
    for done in thread.answers():
        if isinstance(done, Done) and not done.is_whole:
            said = done.error or "what was read is not what was written"
            raise SsdBenchError(f"engine.tiers.ssd_folder: {said}; make room there, or leave the tier out")
    return took_s
