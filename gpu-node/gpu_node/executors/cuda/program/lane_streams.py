"""Lanes of a program as streams of a CUDA device, with events between them; within a capture they become one graph.

Attention has as many programs as fill its part of the device, so that products beside it find processors free. How many
of these a product or a collective takes is left to the vendor's libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.graph.lanes import LaneQueue, ProgramLane, first_ready, permitted_order
from gpu_node.kernels.triton.launch import on_part


@dataclass(frozen=True, slots=True)
class LaneLaunch:
    """An operator's launch in its lane."""

    operator: int
    lane: ProgramLane
    launch: Callable[[CudaStep], None]
    device_part: float
    waits: tuple[int, ...]
    """Operators that end before it."""
    is_awaited: bool
    """By another one."""


@dataclass(frozen=True, slots=True)
class LaneLaunches:
    """What operators launch, and the lanes in which they do."""

    queues: Sequence[LaneQueue]
    launches: Sequence[LaneLaunch]
    """In an order in which they can be queued, each behind those that it waits for."""

    @classmethod
    def of(cls, queues: Sequence[LaneQueue], launches: Sequence[Callable[[CudaStep], None]]) -> LaneLaunches:
        """``launches`` by operator."""
        turns = {turn.operator: (queue.lane, turn) for queue in queues for turn in queue.turns}
        awaited = {other for _, turn in turns.values() for other in turn.waits}
        return cls(
            queues,
            [
                LaneLaunch(one, lane, launches[one], turn.device_part, turn.waits, one in awaited)
                for one in permitted_order(queues, first_ready)
                for lane, turn in (turns[one],)
            ],
        )


class LaneStreams(Protocol):
    """Queues launches in lanes."""

    def queue(self, lanes: LaneLaunches, step: CudaStep) -> None:
        """All of a step, behind what was queued before and ahead of what comes next."""
        ...


class CudaLaneStreams:
    """A stream a lane."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams: dict[ProgramLane, Any] = {lane: torch.cuda.Stream(device) for lane in ProgramLane}  # type: ignore[no-untyped-call]

    def queue(self, lanes: LaneLaunches, step: CudaStep) -> None:
        """From the current stream into those of the lanes, and back to it."""
        current = torch.cuda.current_stream(self._device)
        used = [self._streams[queue.lane] for queue in lanes.queues]
        for stream in used:
            stream.wait_stream(current)
        ends: dict[int, Any] = {}
        for one in lanes.launches:
            stream = self._streams[one.lane]
            for other in one.waits:
                stream.wait_event(ends[other])
            with torch.cuda.stream(stream), on_part(one.device_part):
                one.launch(step)
            if one.is_awaited:
                ends[one.operator] = stream.record_event()
        for stream in used:
            current.wait_stream(stream)


class DirectStreams:
    """Where kernels are interpreted: launches in an order that lanes permit."""

    def __init__(self, choose: Callable[[int], int] = first_ready) -> None:
        """``choose``, of so many operators that could be next, the index of one."""
        self._choose = choose

    def queue(self, lanes: LaneLaunches, step: CudaStep) -> None:
        """One after another."""
        launches = {one.operator: one for one in lanes.launches}
        for index in permitted_order(lanes.queues, self._choose):
            with on_part(launches[index].device_part):
                launches[index].launch(step)


def lane_streams(device: torch.device) -> LaneStreams:
    """Of a device."""
    return CudaLaneStreams(device) if device.type == "cuda" else DirectStreams()
