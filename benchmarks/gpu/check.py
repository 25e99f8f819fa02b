"""Are the CUDA kernels and the engine right on this machine, and how fast? Needs no network and no model files.

    python benchmarks/gpu/check.py [--interpret] [--parts abcde] [--output result.json]

Needs Python, torch and Triton, and no other package. The parts:

a  every kernel against the reference in float64 on random cases, its outputs poisoned before;
b  engines on the device against the reference, token by token: tiny models of each family, with prefixes, forks, beams,
   preemption, graphs, steps ahead;
c  the machine's copy bandwidth and bf16 matrix rate;
d  decode attention in GB/s and prefill attention in TFLOP/s, beside torch's flash attention on contiguous tensors;
e  Llama 3 8B with made-up weights in a batch that fills memory, and what steps take with graphs and without.

The JSON is written after each line, so that a run that is cut loses nothing; the table comes last. A part has a time,
and what it has not measured by then is left out. Ends with 1 if anything is wrong. ``--interpret``: parts a and b,
short, by Triton's interpreter, where there is no device.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from line import Line, failed

if TYPE_CHECKING:
    import torch

LIMIT_S = 475.0
"""Of all: then what hangs is told, and the process ends."""


@dataclass(frozen=True, slots=True)
class Part:
    """Of the check. ``run`` gets the device and what was measured before, by `Line.key`."""

    letter: str
    title: str
    limit_s: float
    run: Callable[[torch.device, Mapping[str, float]], Iterator[Line]]


class Report:
    """What has been found so far, in a file."""

    def __init__(self, machine: Mapping[str, object], output: Path) -> None:
        self._machine = machine
        self._output = output
        self._lines: dict[str, list[Line]] = {}

    def begin(self, title: str) -> None:
        """A part begins."""
        self._lines[title] = []

    def add(self, title: str, line: Line) -> None:
        """A line of a part; says so on stderr."""
        self._lines[title].append(line)
        print(line.text(), file=sys.stderr, flush=True)
        parts = {name: [one.row() for one in lines] for name, lines in self._lines.items()}
        beside = self._output.with_suffix(".part")
        beside.write_text(json.dumps({"machine": self._machine, "parts": parts}, indent=1) + "\n")
        beside.replace(self._output)

    def table(self) -> str:
        """All of it."""
        lines = [json.dumps(self._machine)]
        for title, found in self._lines.items():
            lines += ["", title, *(line.text() for line in found)]
        return "\n".join(lines)

    @property
    def lines(self) -> list[Line]:
        """Of all parts."""
        return [line for lines in self._lines.values() for line in lines]


def run_part(part: Part, device: torch.device, report: Report) -> None:
    """Until it is done, fails, or has used its time."""
    measured = {line.key: line.value for line in report.lines if line.key}
    began_s = perf_counter()
    report.begin(part.title)
    lines = part.run(device, measured)
    try:
        for line in lines:
            report.add(part.title, line)
            if perf_counter() - began_s > part.limit_s:
                report.add(part.title, Line("stopped: its time is over", perf_counter() - began_s, "s"))
                break
    except Exception as error:  # the other parts go on, and the table tells of this one
        traceback.print_exc()
        report.add(part.title, failed(part.title, error))


def main() -> int:
    """Check, measure, report."""
    parser = argparse.ArgumentParser(description="Checks and measures the CUDA kernels and the engine over them.")
    parser.add_argument("--interpret", action="store_true", help="parts a and b, short, by Triton's interpreter")
    parser.add_argument("--parts", help="letters of those that are wanted; all that the machine can run by default")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"), help="where the JSON goes")
    given = parser.parse_args()
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, so nothing that does is imported above
    import torch
    import triton

    if not given.interpret and not torch.cuda.is_available():
        sys.exit(
            f"no CUDA device for torch {torch.__version__}; on a machine that has one, install a build of torch with "
            f"CUDA. To check the kernels without a device: --interpret"
        )
    if given.interpret:
        torch.set_num_threads(1)  # tensors are tiny
    device = torch.device("cpu" if given.interpret else "cuda")
    machine = {
        "device": platform.machine() if given.interpret else torch.cuda.get_device_name(device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "interpreted": given.interpret,
    }
    report = Report(machine, given.output)
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    for part in _parts(given.parts or ("ab" if given.interpret else "abcde")):
        print(f"\n{part.title}", file=sys.stderr, flush=True)
        run_part(part, device, report)
    faulthandler.cancel_dump_traceback_later()
    print(report.table())
    num_wrong = sum(line.is_wrong for line in report.lines)
    num_missed = sum(line.verdict == "missed" for line in report.lines)
    print(f"\n{num_wrong or 'nothing'} wrong, {num_missed} goals missed")
    return 1 if num_wrong else 0


def _parts(letters: str) -> list[Part]:
    from cases import check_kernels
    from equality import check_equality
    from serving import measure_serving
    from speeds import measure_attention, measure_machine

    parts: list[tuple[Any, ...]] = [
        ("a", "Kernels against the reference", 110.0, check_kernels),
        ("b", "Engines against the reference", 110.0, check_equality),
        ("c", "The machine", 15.0, measure_machine),
        ("d", "Attention", 35.0, measure_attention),
        ("e", "Llama 3 8B", 200.0, measure_serving),
    ]
    return [Part(*part) for part in parts if part[0] in letters]


if __name__ == "__main__":
    sys.exit(main())
