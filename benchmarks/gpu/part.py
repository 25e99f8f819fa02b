"""Parts of the check, and the processes that they run in."""

from __future__ import annotations

import faulthandler
import importlib
import json
import math
import os
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from threading import Timer
from time import perf_counter
from typing import TYPE_CHECKING

from line import Line, failed

if TYPE_CHECKING:
    import torch

MEASURED = "GPU_CHECK_MEASURED"
"""Where a process finds what parts before it have measured: JSON."""
GRACE_S = 25.0
"""That a process has beyond its part's time, for the line that it is at and for what it imports."""

Run = Callable[["torch.device", Mapping[str, float], int, int], Iterator[Line]]
"""Gets the device, what was measured before by `Line.key`, and which share it is of how many."""


@dataclass(frozen=True, slots=True)
class Part:
    """Of the check."""

    letter: str
    title: str
    limit_s: float
    module: str
    function: str
    num_shares: int = 1
    """Processes that it is divided among."""
    is_timed: bool = True
    """Whether it wants the device for itself."""

    def load(self) -> Run:
        """What it does."""
        found: Run = getattr(importlib.import_module(self.module), self.function)
        return found


PARTS = {
    part.letter: part
    for part in (
        Part("a", "Kernels against the reference", 110.0, "cases", "check_kernels", num_shares=7, is_timed=False),
        Part("b", "Engines against the reference", 110.0, "equality", "check_equality", num_shares=7, is_timed=False),
        Part("c", "The machine", 15.0, "speeds", "measure_machine"),
        Part("d", "Attention", 35.0, "speeds", "measure_attention"),
        Part("e", "Llama 3 8B", 200.0, "serving", "measure_serving"),
        Part("f", "Products beside attention", 25.0, "beside", "measure_beside"),
        Part("g", "Attention for another device", 25.0, "others", "measure_others"),
        Part("h", "Two processes on the device", 90.0, "two_processes", "check_processes"),
        Part("i", "Two engines on the device", 150.0, "woven", "check_woven"),
        Part("j", "Adapters", 15.0, "low_rank", "measure_adapters"),
    )
}


def run_here(part: Part, share: int, measured: Mapping[str, float], *, is_interpreted: bool) -> int:
    """In this process: a line of JSON each on stdout."""
    import torch

    if is_interpreted:
        torch.set_num_threads(1)  # tensors are tiny
    device = torch.device("cpu" if is_interpreted else "cuda")
    num_shares = 1 if is_interpreted else part.num_shares
    faulthandler.dump_traceback_later(part.limit_s + 0.8 * GRACE_S, exit=True)  # what hangs says where, and ends
    lines = part.load()(device, measured, share, num_shares)
    run(part.title, lines, part.limit_s, lambda line: print(json.dumps(asdict(line)), flush=True))
    return 0


def run(title: str, lines: Iterator[Line], limit_s: float, add: Callable[[Line], None]) -> None:
    """Until it is done, fails, or has used its time."""
    began_s = perf_counter()
    try:
        for line in lines:
            add(line)
            if perf_counter() - began_s > limit_s:
                add(Line("stopped: its time is over", perf_counter() - began_s, "s"))
                break
    except Exception as error:  # the other parts go on, and the table tells of this one
        traceback.print_exc()
        add(failed(title, error))


def listen(command: Sequence[str], limit_s: float, measured: Mapping[str, float], add: Callable[[Line], None]) -> None:
    """Run a process, and hear its lines; a process that does not end by itself is ended, and counts as wrong."""
    environment = {**os.environ, MEASURED: json.dumps(measured)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        timer = Timer(limit_s + GRACE_S, process.kill)
        timer.start()
        for text in process.stdout:
            add(Line(**json.loads(text)))
        code = process.wait()
        timer.cancel()
    if code:
        name = " ".join(command[-2:])
        add(Line(f"process {name} ended with {code}", math.nan, "", at_least=0.0, is_required=True))
