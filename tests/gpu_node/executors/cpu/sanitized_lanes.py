"""Lanes on the CPU device, for a process in which ThreadSanitizer listens: see test_cpu_sanitizer.py.

``python -m tests.gpu_node.executors.cpu.sanitized_lanes with|without|linked FAMILY…``: events between lanes; or with a
link to another device, which attends for remote rows while lanes go on, and is asked by whichever thread has no work.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gpu_node.graph.lanes import LaneQueue
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import Program
from gpu_node.kernels.cpu import CpuDevice
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.executors.cpu.test_cpu_families import in_pipelines, listed_of, on_device
from tests.gpu_node.family_programs import CONFIGS, config, of_program, random_weights
from tests.gpu_node.offload.test_offloaded_program import linked, run
from tests.gpu_node.random_pipelines import random_pipeline

NUM_THREADS = 3


def without_events(program: Program) -> Program:
    """With nothing that any lane waits for."""
    queues = [LaneQueue(one.lane, tuple(replace(turn, waits=()) for turn in one.turns)) for one in program.lanes]
    return replace(program, lanes=tuple(queues))


def run_linked(name: str) -> None:
    """Steps with remote rows in lanes; equal to all at home."""
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    with (
        TemporaryDirectory() as folder,
        CpuDevice(NUM_THREADS) as device,
        CpuDevice(NUM_THREADS) as other,
        linked(model, other, Path(folder), num_slots=64, level="plain") as receiver,
    ):
        for seed, remote in enumerate(((1, 3), (0, 1, 2, 3), (2,))):
            home = run(device, model, plain, stored, remote, level="plain")
            piped = nano_batches(insert_polls(offload(optimize(plain))), random_pipeline(seed))
            ours = run(device, model, listed_of(piped), stored, remote, receiver, piped=piped, level="plain")
            assert ours.equal(home)


def run_lanes(name: str, *, is_ordered: bool) -> None:
    """Steps in all lanes that the tests have; equal to the plain path, where there are events."""
    model = config(**CONFIGS[name])
    program = build_program(model)
    stored = random_weights(model, program)
    with CpuDevice(NUM_THREADS) as device:
        plain = on_device(device, model, program, stored, level="plain")
        for piped in in_pipelines(program):
            listed, weights = listed_of(piped), of_program(piped, stored)
            changed = piped if is_ordered else without_events(piped)
            ours = on_device(device, model, listed, weights, piped=changed, level="plain", checks_copies=is_ordered)
            assert ours.equal(plain) or not is_ordered


def main() -> None:
    """One family after the other: to import all of it takes as long as a family's steps."""
    torch.set_num_threads(1)
    events, *names = sys.argv[1:]
    for name in names:
        if events == "linked":
            run_linked(name)
        else:
            run_lanes(name, is_ordered=events == "with")
        print(f"done: {name}")  # noqa: T201 - for whoever started it


if __name__ == "__main__":
    main()
