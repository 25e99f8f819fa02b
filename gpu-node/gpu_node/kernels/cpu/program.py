"""A program on the CPU device: its buffers, weights and operators, made once."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_float, c_int64
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gpu_node.graph.lanes import ProgramLane
from gpu_node.graph.share import Share
from gpu_node.kernels.cpu.arena import CpuArena
from gpu_node.kernels.cpu.library.layout import MAX_QUERIES, CpuCacheShape, CpuRange, CpuRows, Limits, Type, View
from gpu_node.kernels.cpu.library.library import failed, library
from gpu_node.models.tensors.arrays import Float32s
from gpu_node.models.tensors.quantized_array import quantized_array
from shared.config.engines.engine import WeightType

_LANES = list(ProgramLane)


@dataclass(frozen=True, slots=True)
class OperatorSeconds:
    """Of each of the device's operators, those included that move blocks and draw; steps in lanes left out."""

    seconds: list[float]
    """That it has run in all while its device had links, others' tasks and waits left out."""
    may_split: list[bool]
    """Whether its tasks can be run in parts, with a look for what waits behind each."""
    num_steps: int
    """That were measured."""

    @property
    def num_operators(self) -> int:
        """Of the device."""
        return len(self.seconds)


class CpuProgram:
    """Operators over buffers, weights and a KV cache; made once, then replayed by a device."""

    def __init__(
        self,
        limits: Limits,
        cache: CpuCacheShape,
        num_shared_heads: int,
        wanted_level: str = "",
        *,
        arena: CpuArena,
        host: CpuArena,
        weights: WeightType = "bfloat16",
    ) -> None:
        """``num_shared_heads``: query heads that share one KV head. Blocks lie in ``arena``, swapped out in ``host``.

        The arenas may hold other programs' blocks too; which program has which page is not its business.
        """
        rows_together = max(1, MAX_QUERIES // num_shared_heads)
        self._library = library()
        self.handle = self._library.treadle_program_new(
            wanted_level.encode(), limits, cache, arena.handle, host.handle, rows_together
        )
        self.cache, self.num_shared_heads = cache, num_shared_heads
        self._limits, self._weights = limits, weights
        self._num_under_way = 0
        self.most_under_way = 0
        """Tasks that are sent and not gathered yet, behind one link: it needs as many slots."""
        if not self.handle:
            raise failed()

    def close(self) -> None:
        """Free its memory. None of its steps may be in a queue."""
        handle, self.handle = self.handle, None
        self._library.treadle_program_free(handle)

    def buffer(self, rows: CpuRows, kind: Type, num_columns: int) -> View:
        """A new buffer, all its columns."""
        return View(self._made(self._library.treadle_add_buffer(self.handle, rows, kind, num_columns)), 0, num_columns)

    def weight(self, values: ArrayLike, *, halves: bool = False, is_exact: bool = False) -> int:
        """Pack a linear weight [outputs, inputs] in the program's type; ``halves``: the first gates the second.

        ``is_exact``: as bfloat16, whatever the program's type is.
        """
        numbers = _numbers(values)
        outputs, inputs = numbers.shape
        if self._weights == "int8" and not is_exact:
            integers, scales = quantized_array(numbers)
            arrays = integers.ctypes.data, scales.ctypes.data
            return self._made(self._library.treadle_add_int8_weight(self.handle, *arrays, outputs, inputs, halves))
        return self._made(self._library.treadle_add_weight(self.handle, numbers.ctypes.data, outputs, inputs, halves))

    def constant(self, values: ArrayLike) -> int:
        """Float32 numbers that stay as they are."""
        numbers = _numbers(values)
        return self._made(self._library.treadle_add_constant(self.handle, numbers.ctypes.data, numbers.size))

    def work_on(self, share: Share) -> None:
        """What of a step all operators work on that are added from now on; at first all of it."""
        ranges = [CpuRange.of(one) for one in share.ranges]
        self._made(self._library.treadle_work_on(self.handle, (CpuRange * len(ranges))(*ranges), len(ranges)))

    def queue_in(self, lane: ProgramLane, device_part: float) -> None:
        """Where all operators go that are added from now on: into a lane, with a part of the device's threads."""
        self._made(self._library.treadle_queue_in(self.handle, _LANES.index(lane), device_part))

    def wait_for(self, lane: ProgramLane, num_ended: int) -> None:
        """Before the next operator begins of the lane that is added to, so many of another one have ended."""
        self._made(self._library.treadle_wait_for(self.handle, _LANES.index(lane), num_ended))

    def lane_size(self, lane: ProgramLane) -> int:
        """How many operators a lane has."""
        return self._made(self._library.treadle_lane_size(self.handle, _LANES.index(lane)))

    def add(self, operator: str, *arguments: View | int | float) -> None:
        """Append an operator, by its name in the C interface."""
        self._num_under_way += {"send": 1, "gather": -1}.get(operator, 0)
        self.most_under_way = max(self.most_under_way, self._num_under_way)
        self._made(getattr(self._library, f"treadle_{operator}")(self.handle, *arguments))

    def add_experts(
        self, x: View, routing: View, gates_up: Sequence[int], downs: Sequence[int], num_chosen: int, out: View
    ) -> None:
        """Append a mixture of experts, with the weights of each (gate and up packed in ``halves``)."""
        first, second = (np.array(weights, dtype=np.int32) for weights in (gates_up, downs))
        self.add("experts", x, routing, len(first), first.ctypes.data, second.ctypes.data, num_chosen, out)

    def add_lora(
        self, x: View, shrinks: Sequence[int], expands: Sequence[int], between: Sequence[View], out: View
    ) -> None:
        """Append what adapters add to a product, with the weights of each, or below 0.

        ``between``: float32 and bfloat16 columns for numbers of the largest rank, in rows like ``out``'s.
        """
        first, second = (np.array(weights, dtype=np.int32) for weights in (shrinks, expands))
        self.add("lora", x, len(first), first.ctypes.data, second.ctypes.data, *between, out)

    def times(self) -> OperatorSeconds:
        """How long its operators have run, as the device has them."""
        number = self._made(self._library.treadle_num_operators(self.handle))
        seconds, may_split = np.empty(number, dtype=np.float64), np.empty(number, dtype=np.int32)
        num_steps = self._library.treadle_operator_times(self.handle, seconds.ctypes.data, may_split.ctypes.data)
        return OperatorSeconds(seconds.tolist(), may_split.astype(bool).tolist(), int(num_steps))

    def split(self, num_parts: Sequence[int]) -> None:
        """Divide the tasks of each of the device's operators; none of its steps may be in a queue. No number changes.

        `RuntimeError` for one that cannot be.
        """
        numbers = np.array(num_parts, dtype=np.int32)
        assert len(numbers) == self._library.treadle_num_operators(self.handle)
        self._made(self._library.treadle_split_operators(self.handle, numbers.ctypes.data))

    def buffer_values(self, view: View, rows: CpuRows) -> Float32s:
        """A buffer as it lies in memory, float32 [largest number of rows, columns]; for tests and traces."""
        stride = c_int64()
        address = self._library.treadle_buffer_data(self.handle, view.buffer, stride)
        num_rows = self._limits.max_rows if rows is CpuRows.TOKENS else self._limits.max_draws
        memory = (c_float * (num_rows * stride.value)).from_address(address)
        whole = np.frombuffer(memory, dtype=np.float32).reshape(num_rows, stride.value)
        return whole[:, view.first_column : view.first_column + view.num_columns]

    def _made(self, index: int) -> int:
        if index < 0:
            raise failed()
        return index


def _numbers(values: ArrayLike) -> Float32s:
    """As C++ reads them: float32, without gaps, where the processor wants them."""
    return np.require(values, np.float32, ("C", "A"))
