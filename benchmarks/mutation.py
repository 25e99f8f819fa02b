"""What the tests of scores and formulas are worth: how many wrong programs they notice.

Each mutant of a file (`mutants.py`) is tested by the tests that are there for this file and by no others. A mutant that
all of them pass has survived: either nobody would notice that mistake, or it is none. A process of its own runs each,
forked from one that has loaded what all of them load, and is ended after some times what the true program takes.

Ready-made tools did not fit: mutmut leaves out properties and constants, of which the estimator is made, and cosmic-ray
starts Python anew for each of five thousand mutants.

    python benchmarks/mutation.py --json > mutation.json            # all files, all mutants: some minutes a file
    python benchmarks/mutation.py --most 20 --seed 3 shared/estimator/wait.py
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from mutants import mutants
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Target:
    """A file whose mutants are tested."""

    tests: Sequence[str]
    before: Sequence[str]
    """Modules that its tests need and that do not need it: loaded once for all mutants."""


IN_SIMULATOR = ("services.simulator.simulation", "services.simulator.devices.catalogue", "gateway.inflight.timeline")
SCORES = "tests/cli/test_qlm_scores.py"
RECORDED = "tests/cli/test_live_recording.py"
PLANNING = "tests/unit/queue_manager/plans/test_planning.py"


def _of_estimator(name: str) -> Target:
    own = f"tests/unit/shared/estimator/test_{name}.py"
    tests = [own] if (ROOT / own).exists() else []
    return Target([*tests, "tests/unit/shared/estimator"], ["shared.messages.messages", "shared.config.config"])


TARGETS: Mapping[str, Target] = {
    **{
        f"shared/estimator/{name}.py": _of_estimator(name)
        for name in (
            "answer",
            "backlog",
            "batching",
            "estimator",
            "mixture",
            "overtaking",
            "rates",
            "slack",
            "wait",
        )
    },
    "services/queue_manager/plans/planning.py": Target(
        [PLANNING, "tests/scenarios/test_transcripts.py"], ["services.queue_manager.waits.predictions"]
    ),
    "services/simulator/reports/accuracy.py": Target(["tests/unit/simulator/reports"], IN_SIMULATOR),
    "services/simulator/reports/report.py": Target(["tests/unit/simulator/reports"], IN_SIMULATOR),
    "benchmarks/qlm/estimator_accuracy.py": Target([SCORES], IN_SIMULATOR),
    "benchmarks/qlm/fidelity.py": Target([RECORDED, SCORES], IN_SIMULATOR),
    "benchmarks/qlm/live.py": Target([SCORES, RECORDED], IN_SIMULATOR),
    "benchmarks/qlm/live_devices.py": Target([RECORDED, SCORES], IN_SIMULATOR),
    "benchmarks/qlm/live_record.py": Target([SCORES, RECORDED], IN_SIMULATOR),
}
IGNORED = ("main", "plot")  # functions that read options, draw or print
OPTIONS = (
    *(
        "-o",
        "addopts=",
        "-x",
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "pytest_timeout",
    ),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what was loaded before: its asserts are none of ours
)
NUM_EXAMPLES = 25  # of a property; what breaks one is not made smaller
TIMES_AS_LONG, LEAST_LIMIT_S = 5.0, 20.0


@dataclass(frozen=True)
class Result:
    """Of one file."""

    mutants: int
    """That there are."""
    tested: int
    killed: int
    survived: list[str]
    cpu_s: float


def main() -> None:
    """Parse, test, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(TARGETS)}; all without one")
    parser.add_argument("--most", type=int, metavar="N", help="mutants of a file, drawn by the seed; all without")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for people")
    options = parser.parse_args()
    unknown = [file for file in options.files if file not in TARGETS]
    if unknown:
        parser.error(f"no tests are named for {', '.join(unknown)}")
    found: dict[str, Result] = {}
    with get_context("fork").Pool(
        1, maxtasksperchild=1
    ) as pool:  # what one file's tests load is none of the next one's
        for file in options.files or TARGETS:
            found[file] = pool.apply(examined, (file, TARGETS[file], options.most, options.seed))
    if options.json:
        print(json.dumps({"command": " ".join(sys.argv), "files": {name: asdict(one) for name, one in found.items()}}))
        return
    for name, one in found.items():
        print(f"{name}: {one.killed} of {one.tested} noticed")
        print(*(f"    {mutant}" for mutant in one.survived), sep="\n")


def examined(file: str, target: Target, most: int | None, seed: int) -> Result:
    """Test the mutants of a file; raises `RuntimeError` where the tests do not pass as it is."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in ("pytest_asyncio.plugin", "hypothesis", *target.before):
        importlib.import_module(name)
    source = (ROOT / file).read_text()
    every = mutants(source, IGNORED)
    chosen = every if most is None or most >= len(every) else Random(f"{file} {seed}").sample(every, most)
    began_s = time.monotonic()
    if not passes(file, source, target.tests, LEAST_LIMIT_S * TIMES_AS_LONG):
        raise RuntimeError(f"the tests of {file} do not pass: {' '.join(target.tests)}")
    limit_s = max(LEAST_LIMIT_S, TIMES_AS_LONG * (time.monotonic() - began_s))
    console = Console(stderr=True)
    before_s = _children_cpu_s()
    shown = track(chosen, file, console=console, disable=not console.is_terminal)
    survived = [mutant for mutant in shown if passes(file, mutant.source, target.tests, limit_s)]
    return Result(
        mutants=len(every),
        tested=len(chosen),
        killed=len(chosen) - len(survived),
        survived=[f"line {mutant.line}: {mutant.change}" for mutant in sorted(survived)],
        cpu_s=round(_children_cpu_s() - before_s, 1),
    )


def passes(file: str, source: str, tests: Sequence[str], limit_s: float) -> bool:
    """Whether the tests of a file pass with this source in its place, in a process of its own and in time."""
    process = os.fork()
    if not process:
        os._exit(_tested(file, source, tests))
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def _tested(file: str, source: str, tests: Sequence[str]) -> int:
    """Exit status: 0 where all pass, whatever else happens is not 0."""
    path = Path(file)
    name = path.stem if path.parts[0] == "benchmarks" else ".".join(path.with_suffix("").parts)
    if name in sys.modules:
        os.write(2, f"{name} is loaded already: the mutant would not be\n".encode())
        return 1
    try:
        os.chdir(ROOT)
        sys.meta_path.insert(0, _Replaced(name, ROOT / file, source))
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", max_examples=NUM_EXAMPLES, phases=phases, database=None)
        hypothesis.settings.load_profile("mutants")
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return int(pytest.main([*tests, *OPTIONS]))
    except BaseException:  # whatever it is, the mutant did not pass
        return 1


class _Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, with another source than its file's."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self._name, self._path, self._source = name, path, source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Its own spec, or none."""
        del path, target
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the other source."""
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


def _children_cpu_s() -> float:
    used: Any = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
