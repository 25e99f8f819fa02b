"""Lanes where kernels are interpreted: each launch in its turn, on its part of the device."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from gpu_node.executors.cuda.program.lane_streams import DirectStreams, LaneLaunches
from gpu_node.graph.lanes import LaneQueue, LaneTurn, ProgramLane
from gpu_node.kernels.triton.launch import num_programs

PROCESSORS = torch.device("cpu")  # of which there are 8, with one program each below


def test_each_launch_is_on_the_part_of_its_turn() -> None:
    queues = [
        LaneQueue(ProgramLane.COMPUTE, (LaneTurn(0, 1.0, ()), LaneTurn(2, 0.5, (1,)))),
        LaneQueue(ProgramLane.MEMORY, (LaneTurn(1, 0.25, (0,)),)),
    ]
    heard: list[tuple[int, int]] = []

    def launch(operator: int, _: object) -> None:
        heard.append((operator, num_programs(100, PROCESSORS, 1)))

    lanes = LaneLaunches.of(queues, [partial(launch, operator) for operator in range(3)])
    step: Any = None
    DirectStreams().queue(lanes, step)
    assert heard == [(0, 100), (1, 2), (2, 4)]
    assert num_programs(100, PROCESSORS, 1) == 100
