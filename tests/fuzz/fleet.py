"""A campaign over all targets: a worker process for each, watched, and started again where an input ended it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.box import Box, Counts
from tests.fuzz.campaign import Finding
from tests.fuzz.corpus import keep
from tests.fuzz.target import Target

LOOK_S = 0.2
STALL_S = 120.0
"""A worker whose input takes so long, where its own clock could not interrupt it, is ended."""
MAX_STARTS = 20
"""Of one target's worker: who is ended so often has told enough."""

_ROOT = Path(__file__).parents[2]


@dataclass
class Outcome:
    """What came of one target."""

    num_inputs: int = 0
    num_decoded: int = 0
    num_found: int = 0
    grown_bytes: int = 0
    seconds: float = 0.0
    is_guided: bool = False
    findings: list[str] = field(default_factory=list)
    """File, place and error of the first of each kind."""

    def add(self, counts: Counts) -> None:
        """What one worker has done."""
        self.num_inputs += counts.num_inputs
        self.num_decoded += counts.num_decoded
        self.num_found += counts.num_found
        self.grown_bytes = max(self.grown_bytes, counts.grown_bytes)


def can_guide() -> bool:
    """Whether atheris is there; it is no dependency of the project."""
    return importlib.util.find_spec("atheris") is not None


def run_target(target: Target, num_inputs: int, seed: int, findings: Path, heard: Callable[[int], None]) -> Outcome:
    """Feed a target; ``heard`` is told how many inputs are done."""
    outcome = Outcome(is_guided=target.is_guided and can_guide())
    started_s = time.monotonic()
    for start in range(MAX_STARTS):
        left = num_inputs - outcome.num_inputs
        if left <= 0:
            break
        with _folder() as folder:
            life = _Life(target, folder, findings, heard, outcome.num_inputs)
            how = life.run(left, seed + start, outcome.is_guided)
            counts, data = life.box.read()
            outcome.add(counts)
            outcome.findings += life.told
        if how:
            finding = Finding(target.name, data, how, "worker")
            outcome.num_found += 1
            outcome.findings.append(f"{keep(finding, findings)}\tworker\t{how}")
    outcome.seconds = time.monotonic() - started_s
    return outcome


@contextmanager
def _folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="treadle-fuzz-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Life:
    """One worker process."""

    def __init__(
        self, target: Target, folder: Path, findings: Path, heard: Callable[[int], None], num_before: int
    ) -> None:
        self.box = Box(folder / "box")
        self.told: list[str] = []
        """Findings, a line each."""
        self._target = target
        self._folder = folder
        self._findings = findings
        self._heard = heard
        self._num_before = num_before

    def run(self, num_inputs: int, seed: int, is_guided: bool) -> str:
        """How an input ended it, or ``""``."""
        command = [sys.executable, "-m", "tests.fuzz.worker", self._target.name, f"--inputs={num_inputs}"]
        command += [f"--seed={seed}", f"--box={self._folder / 'box'}", f"--findings={self._findings}"]
        command += ["--guided"] if is_guided else []
        given = {"TREADLE_FUZZ_SCRATCH": str(self._folder), "RUST_BACKTRACE": "0", "TOKENIZERS_PARALLELISM": "false"}
        with (self._folder / "told").open("w+") as told, (self._folder / "log").open("w+") as log:
            worker = subprocess.Popen(command, cwd=_ROOT, env=os.environ | given, stdout=told, stderr=log)
            how = self._watch(worker)
            told.seek(0)
            self.told = [line.rstrip("\n") for line in told if line.count("\t") == 2]
            if how:
                log.seek(0)
                sys.stderr.write(f"{self._target.name}: {how}\n{log.read()[-2000:]}\n")
        return how

    def _watch(self, worker: subprocess.Popen[bytes]) -> str:
        last, since_s = -1, time.monotonic()
        while True:
            try:
                status: int | None = worker.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                status = None
            done = self.box.read()[0].num_inputs
            self._heard(self._num_before + done)
            if status is not None:
                return "" if status == 0 else f"the process ended with status {status}"
            if done != last:
                last, since_s = done, time.monotonic()
            elif time.monotonic() - since_s > STALL_S:
                worker.kill()
                worker.wait()
                return f"no end after {STALL_S:g} s"
