"""What entries share: how kernels are launched, checks of tensors, and what the interpreter cannot do as a device does.

Every kernel is launched by `launch`, so that a recorder of what a step queues hears of each (`recording`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl

INTERPRETED: bool = triton.knobs.runtime.interpret
"""Whether kernels run on the CPU, without a device."""
MIN_DOT = 16
"""Rows and columns of the smallest product that tensor cores make."""
INTERPRETED_PROCESSORS = 8
"""The interpreter has one; it counts as a small device, so that contexts are split there as on others."""

INTERPRETED_SHARED_BYTES = 99 << 10
"""Of a program there: the least that a device of compute capability 8.0 or higher has."""
SCRATCH_BYTES = 8 << 10
"""Of shared memory, that reductions and changes of layout take beside what a kernel asks for."""
ALIGNMENT_BYTES = 16
"""What begins at such an address is read in the widest pieces; a kernel is compiled anew for one that does not."""

LaunchRecorder = Callable[[str, Callable[[], object]], None]
"""Hears the name of each launch, and gets what queues it."""

_recorder: ContextVar[LaunchRecorder | None] = ContextVar("recorder", default=None)
_part: ContextVar[float] = ContextVar("part", default=1.0)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: object, **constants: object) -> None:
    """Queue ``kernel`` for each place of ``grid``; nothing, where that has none.

    Numbers that differ from step to step are arguments that the kernel names in ``do_not_specialize``: it would be
    compiled anew for 1 and for multiples of 16.
    """
    if all(grid):
        queue(kernel.__name__, partial(kernel[grid], *arguments, **constants))


def queue(name: str, run: Callable[[], object]) -> None:
    """Have ``run`` queue something on the device that is no operation of torch's."""
    recorder = _recorder.get()
    if recorder is None:
        run()
    else:
        recorder(name, run)


@contextmanager
def recording(recorder: LaunchRecorder) -> Iterator[None]:
    """Within this, ``recorder`` gets what would be queued."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)


@contextmanager
def on_part(part: float) -> Iterator[None]:
    """Within this, kernels that read memory are launched with as many programs as fill ``part`` of the device.

    So what runs beside them finds processors that are free. Products take what is left: their kernels are the vendor's.
    """
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


def num_programs(num_tasks: int, device: torch.device, programs_a_processor: int) -> int:
    """That ``num_tasks`` are divided among: one each on a whole device, else as many as run on its part at a time."""
    part = _part.get()
    if part >= 1.0:
        return num_tasks
    return min(num_tasks, max(1, round(part * num_processors(device))) * programs_a_processor)


def num_processors(device: torch.device) -> int:
    """Streaming multiprocessors, each of which runs programs of its own."""
    if device.type != "cuda":
        return INTERPRETED_PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def num_stages(stage_bytes: int, kept_bytes: int, most: int) -> int:
    """Turns of a loop that are loaded ahead: as many as a program has shared memory for, ``most`` at most, 1 at least.

    ``stage_bytes`` of one turn, beside ``kept_bytes`` that stay.
    """
    return max(1, min(most, (shared_memory_bytes() - SCRATCH_BYTES - kept_bytes) // stage_bytes))


def shared_memory_bytes() -> int:
    """That one program can have, on the device that kernels are launched on."""
    if INTERPRETED:
        return INTERPRETED_SHARED_BYTES
    driver = triton.runtime.driver.active
    return _shared_memory_bytes(driver.get_current_device())


@cache
def _shared_memory_bytes(device: int) -> int:
    return int(triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"])


def upload(arrays: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """The arrays on the device by one transfer, behind what was queued before, without waiting for that.

    From pinned memory: a copy out of any other would wait for the whole queue. torch does not reuse that memory before
    the copy is over.
    """
    ends = list(accumulate(-(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for array in arrays))
    places = [slice(end, end + array.nbytes) for end, array in zip([0, *ends], arrays, strict=False)]
    packed = torch.empty(sum(ends[-1:]), dtype=torch.uint8, pin_memory=device.type == "cuda")
    for place, array in zip(places, arrays, strict=True):
        packed[place].view(array.dtype).view(array.shape).copy_(array)
    there = packed.to(device, non_blocking=True)
    return [there[place].view(array.dtype).view(array.shape) for place, array in zip(places, arrays, strict=True)]


@triton.jit
def dot(a, b, WIDEN: tl.constexpr):
    """``a @ b`` summed in float32, float32 numbers not cut to TF32.

    ``WIDEN``: the interpreter has no bfloat16, whose products float32 holds exactly.
    """
    if WIDEN:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


def padded(size: int, least: int = 1) -> int:
    """The power of two that a tile of ``size`` numbers is padded to."""
    return max(least, 1 << (size - 1).bit_length())


def check_rows(*tensors: torch.Tensor) -> None:
    """Buffers of a step: floats, [rows, columns], the columns of a row side by side."""
    for tensor in tensors:
        require(tensor.is_floating_point() and tensor.dim() == 2, "expected floats, [rows, columns]", tensor)
        require(tensor.shape[1] < 2 or tensor.stride(1) == 1, "the columns of a row lie side by side", tensor)


def check_whole(*tensors: torch.Tensor) -> None:
    """Weights and tables: without gaps."""
    for tensor in tensors:
        require(tensor.is_contiguous(), "expected a tensor without gaps", tensor)


def require(condition: bool, text: str, tensor: torch.Tensor | None = None) -> None:
    """`ValueError` with what the tensor is like where ``condition`` does not hold."""
    if not condition:
        found = "" if tensor is None else f"; found {tensor.dtype} {list(tensor.shape)} by {tensor.stride()}"
        raise ValueError(text + found)
