"""Are the CUDA kernels and the engine right on this machine, and how fast? Needs no network and no model files.

    python benchmarks/gpu/check.py [--interpret] [--parts abcdefghij] [--output result.json]

Needs Python, torch and Triton, and no other package. The parts:

a  every kernel against the reference in float64 on random cases, its outputs poisoned before;
b  engines on the device against the reference, token by token: tiny models of each family, with prefixes, forks, beams,
   preemption, graphs, steps ahead;
c  the machine's copy bandwidth and bf16 matrix rate;
d  decode attention in GB/s and prefill attention in TFLOP/s, beside torch's flash attention on contiguous tensors;
e  Llama 3 8B with made-up weights in a batch that fills memory, and what steps take with graphs and without;
f  products beside attention, each on a part of the device;
g  attention that another device asks for: what polls cost, and a round trip;
h  two processes linked by memory of the device that both map: blocks there and back, attention, a receiver killed;
i  two engines, of which one lends the other memory and attention: tokens, and what steps take;
j  what adapters cost a layer, beside its products.

Each part runs in processes of its own, for an error of a device ends whoever it happens to; those that take no times
run at once. The JSON is written after each line, so that a run that is cut loses nothing; the table comes last. A part
has a time, and what it has not measured by then is left out. Ends with 1 if anything is wrong. ``--interpret``: parts a
and b, short, by Triton's interpreter, where there is no device.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

from line import Line
from part import MEASURED, PARTS, Part, listen, run_here


class Report:
    """What has been found so far, in a file. Several threads add to it."""

    def __init__(self, machine: Mapping[str, object], output: Path) -> None:
        self._machine = machine
        self._output = output
        self._lines: dict[str, list[Line]] = {}
        self._lock = Lock()

    def add(self, title: str, line: Line) -> None:
        """A line of a part; says so on stderr."""
        with self._lock:
            self._lines.setdefault(title, []).append(line)
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

    @property
    def measured(self) -> dict[str, float]:
        """What later parts compare with, by `Line.key`."""
        return {line.key: line.value for line in self.lines if line.key}


def main() -> int:
    """Check, measure, report."""
    parser = argparse.ArgumentParser(description="Checks and measures the CUDA kernels and the engine over them.")
    parser.add_argument("--interpret", action="store_true", help="parts a and b, short, by Triton's interpreter")
    parser.add_argument("--parts", help="letters of those that are wanted; all that the machine can run by default")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"), help="where the JSON goes")
    parser.add_argument("--run-share", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, so nothing that does is imported above
    if given.run_share:
        letter, share = given.run_share[0], int(given.run_share[1:])
        return run_here(PARTS[letter], share, json.loads(os.environ[MEASURED]), is_interpreted=given.interpret)
    report = Report(_machine(is_interpreted=given.interpret), given.output)
    letters = given.parts or ("ab" if given.interpret else "".join(PARTS))
    parts = [part for letter, part in PARTS.items() if letter in letters]
    together = [part for part in parts if not part.is_timed]
    for group in (together, *([part] for part in parts if part.is_timed)):
        _run(group, report, is_interpreted=given.interpret)
    print(report.table())
    num_wrong = sum(line.is_wrong for line in report.lines)
    num_missed = sum(line.verdict == "missed" for line in report.lines)
    print(f"\n{num_wrong or 'nothing'} wrong, {num_missed} goals missed")
    return 1 if num_wrong else 0


def _machine(*, is_interpreted: bool) -> dict[str, object]:
    import torch
    import triton

    if not is_interpreted and not torch.cuda.is_available():
        sys.exit(
            f"no CUDA device for torch {torch.__version__}; on a machine that has one, install a build of torch with "
            f"CUDA. To check the kernels without a device: --interpret"
        )
    return {
        "device": platform.machine() if is_interpreted else torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "interpreted": is_interpreted,
    }


def _run(group: list[Part], report: Report, *, is_interpreted: bool) -> None:
    """Parts at a time, each in its shares."""
    tasks = [(part, share) for part in group for share in range(1 if is_interpreted else part.num_shares)]
    with ThreadPoolExecutor(max(1, len(tasks))) as pool:
        done = [
            pool.submit(
                listen,
                [*_this(), *["--interpret"] * is_interpreted, "--run-share", f"{part.letter}{share}"],
                part.limit_s,
                report.measured,
                partial(report.add, part.title),
            )
            for part, share in tasks
        ]
        for one in done:
            one.result()


def _this() -> list[str]:
    return [sys.executable, *(f"-W{one}" for one in sys.warnoptions), __file__]


if __name__ == "__main__":
    sys.exit(main())
