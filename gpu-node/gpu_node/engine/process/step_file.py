"""Each step of an engine as a line of a file, to see where its time goes: ``TREADLE_STEP_LOG=FOLDER``.

`benchmarks/qlm/live.py --record` sets it and compares the lines with what the simulator says of the same steps. A
line takes some 20 µs of the host's time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpu_node.engine.border.plan import StepPlan, StepResult

STEP_LOG_ENV = "TREADLE_STEP_LOG"
MAX_STEPS = 1_000_000
"""Lines that an engine writes: some hours of a small model, 250 MB."""


class StepLine(msgspec.Struct, frozen=True):
    """One step, as it was planned and as the device took it."""

    taken_s: float
    """When the host took in its result, in seconds of the system's clock."""
    model: str
    num_sequences: int
    num_rows: int
    num_context_tokens: int
    num_attended_tokens: int
    duration_s: float
    """On the device."""
    idle_s: float
    """Before it, while the device had nothing to do."""
    follows: bool
    """There had been work since the step before: ``idle_s`` is what the host took."""
    num_restored: int
    """Requests that came back with their KV ahead of it."""

    @property
    def cost_s(self) -> float:
        """What it took of the engine's time, as `gpu_node.engine.measures.cost_learner` is told."""
        return self.duration_s + (self.idle_s if self.follows else 0.0)


class StepFile:
    """Writes lines until there are ``max_steps``."""

    def __init__(self, file: BinaryIO, clock: Callable[[], float], max_steps: int = MAX_STEPS) -> None:
        self._file = file
        self._clock = clock
        self._num_left = max_steps

    def write(self, model: str, plan: StepPlan, result: StepResult, *, follows: bool) -> None:
        """As `gpu_node.engine.engine.StepLog`."""
        if not self._num_left:
            return
        self._num_left -= 1
        line = StepLine(
            taken_s=self._clock(),
            model=model,
            num_sequences=len(plan.sequences),
            num_rows=plan.num_tokens,
            num_context_tokens=plan.num_context_tokens,
            num_attended_tokens=plan.num_attended_tokens,
            duration_s=result.duration_s,
            idle_s=result.idle_s,
            follows=follows,
            num_restored=len(plan.restores),
        )
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Write what is left. (A file that is not closed is, where its process ends.)"""
        self._file.close()


def open_step_file(node: str) -> StepFile | None:
    """In the folder that the environment names, to be appended to; None where it names none."""
    folder = os.environ.get(STEP_LOG_ENV)
    return StepFile((Path(folder) / f"{node}.jsonl").open("ab"), time.time) if folder else None


def read_steps(lines: Iterable[bytes]) -> list[StepLine]:
    """Those of a file."""
    decoder = msgspec.json.Decoder(StepLine)
    return [decoder.decode(line) for line in lines]
