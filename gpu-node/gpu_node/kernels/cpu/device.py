"""A CPU device: a queue with threads of its own, which replay programs. Only `wait`, `drain` and `close` take long."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_double
from types import TracebackType
from typing import NamedTuple

import numpy as np

from gpu_node.graph.lanes import ProgramLane
from gpu_node.kernels.cpu.library.library import failed, library
from gpu_node.kernels.cpu.program import CpuProgram
from gpu_node.kernels.cpu.step import CpuStep


class CpuStepTimes(NamedTuple):
    """Where the time of a step went, in seconds."""

    run_s: float
    idle_s: float
    """That the device had no step before it, since the one before; 0.0 where there was none."""
    served_s: float
    """Of ``run_s``, what went to tasks of other engines."""
    waited_s: float
    """Of ``run_s``, what went to waiting for other devices, without what was served meanwhile."""


class CpuDevice:
    """An in-order queue and the threads that serve it."""

    def __init__(self, num_threads: int, cpus: Sequence[int] = ()) -> None:
        """``cpus``: where thread 0, 1, … stay; empty leaves it to the system."""
        self._library = library()
        numbers = np.array(cpus, dtype=np.int32)
        self.handle = self._library.treadle_device_new(num_threads, numbers.ctypes.data, len(numbers))
        if not self.handle:
            raise failed()

    def __enter__(self) -> CpuDevice:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is in the queue and end the threads."""
        handle, self.handle = self.handle, None
        if handle:
            self._library.treadle_device_free(handle)

    def submit(self, program: CpuProgram, step: CpuStep) -> int:
        """Queue a step and return at once; the number of its event. `RuntimeError` for a step that cannot be."""
        event = int(self._library.treadle_submit(self.handle, program.handle, step.as_input()))
        if not event:
            raise failed()
        return event

    def give_masks(self, step: CpuStep) -> None:
        """The late masks of a step that was submitted are there."""
        self._library.treadle_give_masks(step.draws.late_masks_given.ctypes.data)

    def is_done(self, event: int) -> bool:
        """Whether a step is done. Steps are done in the order in which they were submitted."""
        return bool(self._library.treadle_is_done(self.handle, event))

    def wait(self, event: int) -> None:
        """Sleep until a step is done."""
        self._library.treadle_wait(self.handle, event)

    def times(self, event: int) -> CpuStepTimes:
        """Where the time of a step went.

        `RuntimeError` unless the step is done, and one of the last 64.
        """
        times = np.empty(len(CpuStepTimes._fields), dtype=np.float64)
        if not self._library.treadle_step_times(self.handle, event, times.ctypes.data):
            raise failed()
        return CpuStepTimes(*times.tolist())

    def lane_times(self, lane: ProgramLane, most: int) -> list[tuple[float, float]]:
        """When each operator of a lane began and ended in the last step that went through lanes, in seconds.

        At most so many of them. `RuntimeError` while steps are under way.
        """
        times = np.empty((most, 2), dtype=np.float64)
        number = self._library.treadle_lane_times(self.handle, list(ProgramLane).index(lane), most, times.ctypes.data)
        if number < 0:
            raise failed()
        return [(float(begin), float(end)) for begin, end in times[:number]]

    @property
    def num_served(self) -> int:
        """Tasks of other engines that it has done."""
        return int(self._library.treadle_num_served(self.handle))

    @property
    def attended(self) -> tuple[int, float]:
        """How often it has attended for other engines, and how many seconds all of that took."""
        seconds = c_double()
        number = int(self._library.treadle_attended(self.handle, byref(seconds)))
        return number, seconds.value

    def drain(self) -> None:
        """Sleep until everything submitted is done."""
        self._library.treadle_drain(self.handle)
