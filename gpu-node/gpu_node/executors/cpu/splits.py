"""A CPU device's operators are split by what it measures while it serves others (Weaver, ATC'25, §4.2).

No weight is packed again, and no number changes: an operator's tasks are run in several parts, with a look for what
waits behind each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpu_node.graph.passes.offload.splitting import OffloadProfile, Splitting
from gpu_node.kernels.cpu import CpuDevice, CpuLinkReceiver, CpuProgram

MIN_STEPS = 32
"""Of a program, and `MIN_TASKS` of others, between two looks: means of fewer say little."""
MIN_TASKS = 256


@dataclass(slots=True)
class _Measured:
    """What had been measured of a program at the last look, and how it is split since."""

    splitting: Splitting
    seconds: list[float]
    num_steps: int
    num_parts: list[int]


class CpuSplits:
    """Of all programs that a device runs."""

    def __init__(self, device: CpuDevice) -> None:
        self._device = device
        self._programs: dict[CpuProgram, _Measured] = {}
        self._attended = (0, 0.0)
        self._service_s = 0.0

    def look(self, programs: Collection[CpuProgram], links: Collection[CpuLinkReceiver]) -> None:
        """Split them for the sender that hides the least, where what was measured since has changed enough."""
        self._forget_all_but(programs)
        for program in programs:
            if program not in self._programs:
                self._begin(program)
        self._measure_service()
        sender = min((link for link in links if all(link.sender_times)), key=_local_s, default=None)
        if sender is None or not self._service_s:
            return
        local_s, step_s = sender.sender_times
        for program in programs:
            durations_s = self._durations(program)
            if durations_s is not None:
                profile = OffloadProfile(durations_s, local_s, self._service_s, step_s, sender.shape.num_layers)
                self._observe(program, profile)

    def num_parts(self, program: CpuProgram) -> list[int]:
        """Of each of the device's operators."""
        measured = self._programs.get(program)
        return list(measured.num_parts) if measured is not None else [1] * program.times().num_operators

    def join_parts(self, programs: Collection[CpuProgram]) -> None:
        """No sender is served any more: whole operators cost fewer meetings of threads."""
        self._forget_all_but(programs)
        for program in self._programs:
            self._split(program, [1] * program.times().num_operators)
        self._programs.clear()

    def _split(self, program: CpuProgram, num_parts: list[int]) -> None:
        self._device.drain()  # rare: only where means have drifted
        program.split(num_parts)

    def _observe(self, program: CpuProgram, profile: OffloadProfile) -> None:
        measured = self._programs[program]
        if not measured.splitting.observe(profile):
            return
        plan: Mapping[int, int] = measured.splitting.plan
        measured.num_parts = [plan.get(index, 1) for index in range(len(profile.durations_s))]
        self._split(program, measured.num_parts)

    def _begin(self, program: CpuProgram) -> None:
        times = program.times()
        whole = [1] * times.num_operators
        self._programs[program] = _Measured(Splitting(times.may_split), times.seconds, times.num_steps, whole)
        self._split(program, whole)  # it may have left this device split, and come back

    def _durations(self, program: CpuProgram) -> list[float] | None:
        """Of each operator in a mean step since the last look; None while there were few."""
        times = program.times()
        known = self._programs[program]
        num_steps = times.num_steps - known.num_steps
        if num_steps < MIN_STEPS:
            return None
        durations_s = [(now - then) / num_steps for now, then in zip(times.seconds, known.seconds, strict=True)]
        known.seconds, known.num_steps = times.seconds, times.num_steps
        return durations_s

    def _measure_service(self) -> None:
        number, seconds = self._device.attended
        num_before, seconds_before = self._attended
        if number - num_before >= MIN_TASKS:
            self._service_s = (seconds - seconds_before) / (number - num_before)
            self._attended = number, seconds

    def _forget_all_but(self, programs: Collection[CpuProgram]) -> None:
        self._programs = {program: one for program, one in self._programs.items() if program in programs}


def _local_s(link: CpuLinkReceiver) -> float:
    return link.sender_times[0]
