"""The CPU device as Python sees it: a queue with threads of its own, and programs that are replayed on it.

Every call into the library is made without the GIL; only `CpuDevice.wait` and `CpuDevice.close` take long.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Any

import numpy as np
import torch

from gpu_node.engine.arena import LINE_BYTES
from gpu_node.kernels.cpu_build import library_path
from gpu_node.kernels.cpu_draws import NO_DRAWS, CpuDraws
from gpu_node.models.quantization import quantized
from shared.config import WeightType

LEVELS = ("plain", "avx2", "avx512", "amx")
MAX_QUERIES = 48
"""Rows times heads that share a KV head in one attention task (kMaxQueries in kernels.h)."""

Int32s = np.ndarray[Any, np.dtype[np.int32]]
Float32s = np.ndarray[Any, np.dtype[np.float32]]


class Rows(IntEnum):
    """What the rows of a buffer stand for."""

    TOKENS = 0
    DRAWS = 1


class Type(IntEnum):
    """How a buffer holds its numbers."""

    FLOAT32 = 0
    BFLOAT16 = 1


class Epilogue(IntEnum):
    """What a product does with its sums."""

    STORE = 0
    ADD = 1
    SILU_MUL = 2


class Index(IntEnum):
    """What chooses the rows of an embedding."""

    TOKEN_IDS = 0
    POSITIONS = 1


class View(Structure):
    """Some columns of a buffer."""

    _fields_ = (("buffer", c_int32), ("first_column", c_int32), ("num_columns", c_int32))


class Share(Structure):
    """Part ``index`` of ``count`` of a step's batch; see `gpu_node.graph.share`."""

    _fields_ = (("index", c_int32), ("count", c_int32))


WHOLE = Share(0, 1)
_Serve = CFUNCTYPE(None, c_void_p)


class Limits(Structure):
    """The largest step of a program."""

    _fields_ = (("max_rows", c_int32), ("max_draws", c_int32), ("max_positions", c_int32), ("vocabulary", c_int32))


class CacheShape(Structure):
    """The paged KV cache of a program."""

    _fields_ = (
        ("num_layers", c_int32),
        ("num_blocks", c_int32),
        ("block_size", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
    )
    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    @property
    def layer_bytes(self) -> int:
        """Keys and values of one block in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.block_size * 2

    @property
    def block_bytes(self) -> int:
        """Those of all layers, in whole lines."""
        return -(-self.num_layers * self.layer_bytes // LINE_BYTES) * LINE_BYTES


class _StepInput(Structure):
    _fields_ = (
        ("num_sequences", c_int32),
        ("starts", c_void_p),
        ("num_rows", c_void_p),
        ("num_blocks", c_void_p),
        ("block_tables", c_void_p),
        ("token_ids", c_void_p),
        ("num_draw_rows", c_int32),
        ("draw_rows", c_void_p),
        ("num_draws", c_int32),
        ("draws", c_char_p),
        ("biases", c_char_p),
        ("prior_tokens", c_void_p),
        ("first_cell", c_int32),
        ("num_copies", c_int32),
        ("copies", c_void_p),
        ("num_swaps_out", c_int32),
        ("swaps_out", c_void_p),
        ("num_swaps_in", c_int32),
        ("swaps_in", c_void_p),
        ("tokens", c_void_p),
        ("logprobs", c_void_p),
        ("top_tokens", c_void_p),
        ("top_logprobs", c_void_p),
        ("logits", c_void_p),
    )


def _no_moves() -> Int32s:
    return np.empty((0, 2), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class CpuStep:
    """One step. Inputs are copied when it is submitted; outputs are written until its event has happened."""

    starts: Int32s
    """[sequences]: tokens before the rows of each sequence."""
    num_rows: Int32s
    """[sequences]"""
    num_blocks: Int32s
    """[sequences]"""
    block_tables: Int32s
    """Those of all sequences, one behind the other."""
    token_ids: Int32s
    """[rows]: ids, or the marks of cells (`cell_mark`)."""
    draw_rows: Int32s
    """[draw rows]: the rows that logits are made of."""
    copies: Int32s
    """[copies, 2]: source and destination blocks."""
    logits: Float32s | None
    """Out, [draw rows, vocabulary]; None where nobody asks for them."""
    draws: CpuDraws = NO_DRAWS
    """What is drawn from the logits; what comes out lies there too."""
    swaps_out: Int32s = field(default_factory=_no_moves)
    """[swaps, 2]: block of the device and block of the host. Made before the copies."""
    swaps_in: Int32s = field(default_factory=_no_moves)
    """[swaps, 2]: block of the device and block of the host. Made after the copies."""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled library; `CompilerError` if there is none and none can be made."""
    loaded = ctypes.CDLL(str(library_path()))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, f"treadle_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "error": (c_char_p, []),
    "level": (c_char_p, [c_char_p]),
    "device_new": (c_void_p, [c_int32, c_void_p, c_int32]),
    "device_free": (None, [c_void_p]),
    "arena_new": (c_void_p, [c_int64, c_int64]),
    "arena_free": (None, [c_void_p]),
    "arena_data": (c_void_p, [c_void_p]),
    "program_new": (c_void_p, [c_char_p, POINTER(Limits), POINTER(CacheShape), c_void_p, c_void_p, c_int32]),
    "program_free": (None, [c_void_p]),
    "add_buffer": (c_int32, [c_void_p, c_int32, c_int32, c_int32]),
    "add_weight": (c_int32, [c_void_p, c_void_p, c_int32, c_int32, c_int32]),
    "add_int8_weight": (c_int32, [c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32]),
    "add_constant": (c_int32, [c_void_p, c_void_p, c_int64]),
    "buffer_data": (c_void_p, [c_void_p, c_int32, POINTER(c_int64)]),
    "embedding": (c_int32, [c_void_p, c_int32, c_int32, View]),
    "rms_norm": (c_int32, [c_void_p, View, c_int32, c_float, View]),
    "linear": (c_int32, [c_void_p, View, c_int32, c_int32, View]),
    "round": (c_int32, [c_void_p, View, View]),
    "rope": (c_int32, [c_void_p, View, c_int32]),
    "write_kv": (c_int32, [c_void_p, View, View, c_int32]),
    "rope_write_kv": (c_int32, [c_void_p, View, View, View, c_int32, c_int32]),
    "attention": (c_int32, [c_void_p, View, c_int32, c_int32, Share, View]),
    "layer_norm": (c_int32, [c_void_p, View, c_int32, c_int32, c_float, View]),
    "head_norm": (c_int32, [c_void_p, View, c_int32, c_float]),
    "add_bias": (c_int32, [c_void_p, View, c_int32]),
    "relu": (c_int32, [c_void_p, View, View]),
    "gelu": (c_int32, [c_void_p, View, View]),
    "silu_mul": (c_int32, [c_void_p, View, View, View]),
    "add": (c_int32, [c_void_p, View, View, View]),
    "route": (c_int32, [c_void_p, View, c_int32, View]),
    "experts": (c_int32, [c_void_p, View, View, c_int32, c_void_p, c_void_p, c_int32, View]),
    "poll": (c_int32, [c_void_p]),
    "select_draws": (c_int32, [c_void_p, View, View]),
    "draw": (c_int32, [c_void_p, View]),
    "submit": (c_uint64, [c_void_p, c_void_p, POINTER(_StepInput)]),
    "is_done": (c_int32, [c_void_p, c_uint64]),
    "wait": (None, [c_void_p, c_uint64]),
    "step_times": (c_int32, [c_void_p, c_uint64, c_void_p]),
    "drain": (None, [c_void_p]),
    "set_poll": (None, [c_void_p, _Serve, c_void_p, c_void_p]),
}


def level(wanted: str = "") -> str | None:
    """The level of kernels that this machine runs, or ``wanted`` itself if it has that, else None."""
    found: bytes | None = library().treadle_level(wanted.encode())
    return None if found is None else found.decode()


def _failed() -> RuntimeError:
    return RuntimeError(f"CPU device: {library().treadle_error().decode()}")


class CpuArena:
    """Memory for KV blocks, in pages. The system gives it when it is first written."""

    def __init__(self, num_pages: int, page_bytes: int) -> None:
        """Of a page, whole lines are used. `RuntimeError` for more than the system has, or than 128 GiB."""
        self._library = library()
        self.num_bytes = num_pages * (page_bytes // LINE_BYTES * LINE_BYTES)
        self.handle = self._library.treadle_arena_new(num_pages, page_bytes)
        if not self.handle:
            raise _failed()

    def close(self) -> None:
        """Free the memory. No program that lies in it may be left."""
        handle, self.handle = self.handle, None
        self._library.treadle_arena_free(handle)

    def bits(self) -> Int32s:
        """All of it as it lies in memory, two numbers in each int32; for tests."""
        data = ctypes.cast(self._library.treadle_arena_data(self.handle), POINTER(c_int32))
        return np.ctypeslib.as_array(data, shape=(self.num_bytes // 4,))


class CpuProgram:
    """Operators over buffers, weights and a KV cache; made once, then replayed by a device."""

    def __init__(
        self,
        limits: Limits,
        cache: CacheShape,
        num_shared_heads: int,
        wanted_level: str = "",
        *,
        arena: CpuArena,
        host: CpuArena,
        weights: WeightType = "bfloat16",
    ) -> None:
        """``num_shared_heads``: query heads that share one KV head. Blocks lie in ``arena``, swapped out in ``host``.

        The arenas may hold other programs' blocks too; who has which page is not the program's business.
        """
        rows_together = max(1, MAX_QUERIES // num_shared_heads)
        self._library = library()
        self.handle = self._library.treadle_program_new(
            wanted_level.encode(), limits, cache, arena.handle, host.handle, rows_together
        )
        self._limits, self._weights = limits, weights
        if not self.handle:
            raise _failed()

    def close(self) -> None:
        """Free its memory. None of its steps may be in a queue."""
        handle, self.handle = self.handle, None
        self._library.treadle_program_free(handle)

    def buffer(self, rows: Rows, kind: Type, num_columns: int) -> View:
        """A new buffer, all its columns."""
        return View(self._made(self._library.treadle_add_buffer(self.handle, rows, kind, num_columns)), 0, num_columns)

    def weight(self, values: torch.Tensor, *, halves: bool = False) -> int:
        """Pack a linear weight [outputs, inputs] in the program's type; ``halves``: the first gates the second."""
        outputs, inputs = values.shape
        if self._weights == "int8":
            packed = quantized(values)
            integers, scales = packed.values.contiguous(), packed.scales.contiguous()
            arrays = integers.data_ptr(), scales.data_ptr()
            return self._made(self._library.treadle_add_int8_weight(self.handle, *arrays, outputs, inputs, halves))
        values = values.to(torch.float32).contiguous()
        return self._made(self._library.treadle_add_weight(self.handle, values.data_ptr(), outputs, inputs, halves))

    def constant(self, values: torch.Tensor) -> int:
        """Float32 numbers that stay as they are."""
        values = values.to(torch.float32).contiguous()
        return self._made(self._library.treadle_add_constant(self.handle, values.data_ptr(), values.numel()))

    def add(self, operator: str, *arguments: View | Share | int | float) -> None:
        """Append an operator, by its name in the C interface."""
        self._made(getattr(self._library, f"treadle_{operator}")(self.handle, *arguments))

    def add_experts(
        self, x: View, routing: View, gates_up: Sequence[int], downs: Sequence[int], num_chosen: int, out: View
    ) -> None:
        """Append a mixture of experts, with the weights of each (gate and up packed in ``halves``)."""
        first, second = (np.array(weights, dtype=np.int32) for weights in (gates_up, downs))
        self.add("experts", x, routing, len(first), first.ctypes.data, second.ctypes.data, num_chosen, out)

    def buffer_values(self, view: View, rows: Rows) -> torch.Tensor:
        """A buffer as it lies in memory, float32 [largest number of rows, columns]; for tests and traces."""
        stride = c_int64()
        address = self._library.treadle_buffer_data(self.handle, view.buffer, stride)
        num_rows = self._limits.max_rows if rows is Rows.TOKENS else self._limits.max_draws
        memory = (c_float * (num_rows * stride.value)).from_address(address)
        whole = torch.frombuffer(memory, dtype=torch.float32).view(num_rows, stride.value)
        return whole[:, view.first_column : view.first_column + view.num_columns]

    def _made(self, index: int) -> int:
        if index < 0:
            raise _failed()
        return index


class CpuDevice:
    """An in-order queue and the threads that serve it."""

    def __init__(self, num_threads: int, cpus: Sequence[int] = ()) -> None:
        """``cpus``: where thread 0, 1, … stay; empty leaves it to the system."""
        self._library = library()
        self._poll: tuple[object, c_uint64] | None = None
        numbers = np.array(cpus, dtype=np.int32)
        self._handle = self._library.treadle_device_new(num_threads, numbers.ctypes.data, len(numbers))
        if not self._handle:
            raise _failed()

    def __enter__(self) -> CpuDevice:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is in the queue and end the threads."""
        handle, self._handle = self._handle, None
        if handle:
            self._library.treadle_device_free(handle)

    def submit(self, program: CpuProgram, step: CpuStep) -> int:
        """Queue a step and return at once; the number of its event. `RuntimeError` for a step that cannot be."""
        draws = step.draws
        given = _StepInput(
            len(step.starts),
            *(array.ctypes.data for array in (step.starts, step.num_rows, step.num_blocks, step.block_tables)),
            step.token_ids.ctypes.data,
            len(step.draw_rows),
            step.draw_rows.ctypes.data,
            len(draws.tokens),
            draws.draws,
            draws.biases,
            draws.prior_tokens.ctypes.data,
            draws.first_cell,
            len(step.copies),
            step.copies.ctypes.data,
            len(step.swaps_out),
            step.swaps_out.ctypes.data,
            len(step.swaps_in),
            step.swaps_in.ctypes.data,
            *(array.ctypes.data for array in (draws.tokens, draws.logprobs, draws.top_tokens, draws.top_logprobs)),
            None if step.logits is None else step.logits.ctypes.data,
        )
        event = int(self._library.treadle_submit(self._handle, program.handle, given))
        if not event:
            raise _failed()
        return event

    def is_done(self, event: int) -> bool:
        """Whether a step is done. Steps are done in the order in which they were submitted."""
        return bool(self._library.treadle_is_done(self._handle, event))

    def wait(self, event: int) -> None:
        """Sleep until a step is done."""
        self._library.treadle_wait(self._handle, event)

    def times(self, event: int) -> tuple[float, float]:
        """Seconds that a step took, and that the device had nothing to do before it since the one before (0.0: none).

        `RuntimeError` unless the step is done, and one of the last 64.
        """
        times = np.empty(2, dtype=np.float64)
        if not self._library.treadle_step_times(self._handle, event, times.ctypes.data):
            raise _failed()
        return float(times[0]), float(times[1])

    def set_poll(self, serve: Callable[[], None], num_asked: c_uint64) -> None:
        """Call ``serve`` between two operators, the first of them polled, when ``num_asked`` has changed.

        Whoever wants something done adds to ``num_asked``. ``serve`` runs in a thread of the device, which all others
        wait for, and must not raise. Waits until the queue is empty.
        """
        hook = _Serve(lambda _context: serve())
        self._library.treadle_set_poll(self._handle, hook, None, ctypes.addressof(num_asked))
        self._poll = (hook, num_asked)  # the device keeps their addresses

    def clear_poll(self) -> None:
        """Nothing is looked for any more. Waits until the queue is empty."""
        self._library.treadle_set_poll(self._handle, _Serve(), None, None)
        self._poll = None

    def drain(self) -> None:
        """Sleep until everything submitted is done."""
        self._library.treadle_drain(self._handle)
