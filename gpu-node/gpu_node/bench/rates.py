"""What the machine does at best: bytes read from memory, and bfloat16 matrix products, a second.

The fastest of some short tries counts: what the machine can do while nothing else runs on it.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuProgram,
    CpuRows,
    CpuStep,
    Epilogue,
    Limits,
    Type,
)

READ_BYTES = 512 << 20  # far more than any cache holds
NUM_READS = 20
NUM_PRODUCTS = 20
PRODUCTS_S = 2.0  # but no further try behind that, and none that would take as long
SHAPES = ((1536, 1536, 1536), (512, 2304, 2304))
"""Rows, inputs and outputs of products that keep the arithmetic units busy.

Rows whose length is a power of two share a few cache sets, so there are none."""
SMALL_SHAPE = (16, 1536, 1536)
"""Tried first: without bfloat16 instructions oneDNN makes less than a thousand million operations a second, and each of
`SHAPES` takes half a minute. Then this one's rate stands for theirs."""


def read_bytes_per_s(num_threads: int, cpus: Sequence[int] = ()) -> float:
    """Memory read end to end, each thread its own part, pinned to ``cpus`` where there are any.

    Two things decide what is measured. Pages of 2 MB (asked of the system): with small ones the walk through the page
    tables is a third of the time. And a loop that does next to nothing with what it loads: an or of 64-bit words,
    which numpy compiles for the widest vectors that the processor has. By hand-written 512-bit loads it is not faster.
    """
    memory = mmap.mmap(-1, READ_BYTES)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    words = np.frombuffer(memory, dtype=np.uint64)
    words[:] = 1
    parts = np.array_split(words, num_threads)
    return READ_BYTES / min(_read_s(parts, cpus) for _ in range(NUM_READS))


def _read_s(parts: Sequence[np.ndarray[Any, Any]], cpus: Sequence[int]) -> float:
    """Seconds from the first thread's begin to the last one's end."""
    begin = threading.Barrier(len(parts))
    times: list[float] = []  # taken by the threads: one that waits for them may get a core only when they are done

    def read(number: int) -> None:
        if cpus:
            os.sched_setaffinity(0, {cpus[number]})  # 0 is this thread
        begin.wait()
        times.append(time.perf_counter())
        np.bitwise_or.reduce(parts[number])
        times.append(time.perf_counter())

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times) - min(times)


def onednn_flops_per_s(num_threads: int) -> float | None:
    """By torch, whose products of bfloat16 are oneDNN's; the best of `SHAPES`. None where torch is not installed."""
    if find_spec("torch") is None:
        return None
    import torch  # it takes a second: not for callers that measure nothing with it

    torch.set_num_threads(num_threads)
    best = _flops_per_s(SMALL_SHAPE, _onednn_product(SMALL_SHAPE))
    for shape in SHAPES:
        if _num_flops(shape) <= PRODUCTS_S * best:
            best = max(best, _flops_per_s(shape, _onednn_product(shape)))
    return best


def kernels_flops_per_s(num_threads: int, cpus: Sequence[int] = ()) -> float:
    """By our own linear operator on a device of its own; the best of `SHAPES`."""
    with CpuDevice(num_threads, cpus) as device:
        return max(_kernels_rate(device, shape) for shape in SHAPES)


def _num_flops(shape: tuple[int, int, int]) -> int:
    num_rows, num_inputs, num_outputs = shape
    return 2 * num_rows * num_inputs * num_outputs


def _flops_per_s(shape: tuple[int, int, int], product: Callable[[], object]) -> float:
    seconds: list[float] = []
    while len(seconds) <= NUM_PRODUCTS and sum(seconds) < PRODUCTS_S:
        started_s = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - started_s)
    return _num_flops(shape) / min(seconds)


def _onednn_product(shape: tuple[int, int, int]) -> Callable[[], object]:
    import torch

    num_rows, num_inputs, num_outputs = shape
    x = torch.ones(num_rows, num_inputs, dtype=torch.bfloat16)
    weight = torch.ones(num_inputs, num_outputs, dtype=torch.bfloat16)
    return lambda: x @ weight


def _kernels_rate(device: CpuDevice, shape: tuple[int, int, int]) -> float:
    num_rows, num_inputs, num_outputs = shape
    cache = CpuCacheShape(1, 1, 16, 1, 16)
    arena = CpuArena(1, cache.block_bytes)
    program = CpuProgram(Limits(num_rows, num_rows, num_rows, 1), cache, 1, arena=arena, host=arena)
    try:
        x = program.buffer(CpuRows.TOKENS, Type.BFLOAT16, num_inputs)
        out = program.buffer(CpuRows.TOKENS, Type.FLOAT32, num_outputs)
        program.add(
            "linear", x, program.weight(np.ones((num_outputs, num_inputs), dtype=np.float32)), Epilogue.STORE, out
        )
        step = _rows_only(num_rows)
        return _flops_per_s(shape, lambda: device.wait(device.submit(program, step)))
    finally:
        device.drain()
        program.close()
        arena.close()


def _rows_only(num_rows: int) -> CpuStep:
    """A step of rows that belong to no context and draw nothing."""
    zeros, none = np.zeros(num_rows, dtype=np.int32), np.zeros(0, dtype=np.int32)
    ones = np.ones(num_rows, dtype=np.int32)
    return CpuStep(
        starts=zeros,
        num_rows=ones,
        num_blocks=ones,
        block_tables=zeros,
        token_ids=zeros,
        draw_rows=none,
        copies=none.reshape(0, 2),
        logits=None,
    )
