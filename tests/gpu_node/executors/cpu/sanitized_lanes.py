"""Lanes on the CPU device, for a process in which ThreadSanitizer listens: see test_cpu_sanitizer.py.

``python -m tests.gpu_node.executors.cpu.sanitized_lanes FAMILY with|without``: events between lanes.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from gpu_node.graph.lanes import LaneQueue
from gpu_node.graph.program import Program
from gpu_node.kernels.cpu import CpuDevice
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.executors.cpu.test_cpu_families import in_pipelines, listed_of, on_device
from tests.gpu_node.family_programs import CONFIGS, config, of_program, random_weights

NUM_THREADS = 3


def without_events(program: Program) -> Program:
    """With nothing that any lane waits for."""
    queues = [LaneQueue(one.lane, tuple(replace(turn, waits=()) for turn in one.turns)) for one in program.lanes]
    return replace(program, lanes=tuple(queues))


def main() -> None:
    """Steps in all lanes that the tests have; equal to the plain path, where there are events."""
    torch.set_num_threads(1)
    name, events = sys.argv[1:]
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    with CpuDevice(NUM_THREADS) as device:
        plain = on_device(device, model, program, stored, level="plain")
        for piped in in_pipelines(program):
            listed, weights = listed_of(piped), of_program(piped, stored)
            changed = piped if events == "with" else without_events(piped)
            is_ordered = events == "with"
            ours = on_device(device, model, listed, weights, piped=changed, level="plain", checks_copies=is_ordered)
            assert ours.equal(plain) or not is_ordered
    print("done")  # noqa: T201 - for whoever started it


if __name__ == "__main__":
    main()
