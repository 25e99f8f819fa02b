"""`make gpu-check`: what it needs, what it says without a device, and that all that needs no clock runs without one."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpu_node.kernels.triton.launch import INTERPRETED

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "benchmarks" / "gpu"
SCRIPT = FOLDER / "check.py"
NOT_NEEDED = ("msgspec", "pydantic", "structlog", "safetensors", "gguf", "yaml", "redis", "aiohttp")
"""numpy is, by Triton's interpreter alone: see tests/gpu_node/engine/test_needs_torch_alone.py."""
BEGUN = "begun"
IN_EACH_PROCESS = f"""
import sys
from pathlib import Path

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_NEEDED}:
            raise ModuleNotFoundError(f"{{name}} is not installed here")

sys.meta_path.insert(0, Blocked())
with Path(__file__).with_name("{BEGUN}").open("a") as begun:
    begun.write("a process\\n")
from tests.gpu_node.quick_interpreter import quicken

quicken()
"""
"""Python runs it first: to this process and to all that it starts other packages are not there."""
INTERPRETED_PARTS = "abehi"
Rows = Sequence[Mapping[str, Any]]
"""Of the JSON, a line each."""


@pytest.mark.skipif(not INTERPRETED, reason="there is a CUDA device: run `make gpu-check`")
def test_without_a_device_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    command = [sys.executable, str(SCRIPT), "--output", str(result)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "TRITON_INTERPRET": ""}
    )
    assert done.returncode == 1
    assert "no CUDA device" in done.stderr
    assert "--interpret" in done.stderr
    assert not result.exists()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Rows]:
    """By title, what is found by the interpreter, each part in processes of its own."""
    if not INTERPRETED:
        pytest.skip("there is a CUDA device: run `make gpu-check`")
    folder = tmp_path_factory.mktemp("check")
    (folder / "sitecustomize.py").write_text(IN_EACH_PROCESS)
    result = folder / "result.json"
    options = ["--interpret", "--parts", INTERPRETED_PARTS, "--output", str(result)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "gpu-node")))}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), *options],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nnothing wrong, " in done.stdout
    assert len((folder / BEGUN).read_text().splitlines()) > len(INTERPRETED_PARTS), "one a part, and others"
    found: dict[str, Rows] = json.loads(result.read_text())["parts"]
    return found


def verdicts(rows: Rows) -> list[str]:
    return [row["verdict"] for row in rows]


all_parts = pytest.mark.timeout(600)  # some 40 s of a processor


@all_parts
def test_kernels_engines_and_serving_run_by_the_interpreter_with_torch_and_triton_alone(
    parts: Mapping[str, Rows],
) -> None:
    kernels, engines = parts["Kernels against the reference"], parts["Engines against the reference"]
    assert set(verdicts(kernels)) == {"right"}
    assert len({row["what"].partition(",")[0] for row in kernels}) == 13, "every kernel has cases"
    assert verdicts(engines) == ["right"]
    assert "1 preemptions" in engines[0]["note"]
    serving = parts["Llama 3 8B"]
    throughput = next(row["value"] for row in serving if row["what"].startswith("total throughput"))
    assert throughput > 0
    steps = [row["what"] for row in serving if row["what"].startswith("decode step")]
    assert steps == [f"decode step of {batch}, {way}" for way in ("graphs", "launch by launch") for batch in (1, 3)]


@all_parts
def test_two_processes_are_linked_and_a_killed_one_is_lost(parts: Mapping[str, Rows]) -> None:
    assert verdicts(parts["Two processes on the device"]) == ["right", "right", "", "right"]


@all_parts
def test_two_engines_are_woven_with_torch_and_triton_alone(parts: Mapping[str, Rows]) -> None:
    (row,) = parts["Two engines on the device"]
    assert (row["value"], row["verdict"]) == (0, "right")
    assert " 0 tasks served" not in row["note"]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("check")
    for name in ("check", "line", "part"):
        sys.modules.pop(name)


def test_a_part_that_fails_or_takes_too_long_hides_no_other(check: Any, tmp_path: Path) -> None:
    line, part = check.Line, importlib.import_module("part")

    def fails() -> Iterator[Any]:
        yield line("first", 1.0, "s", key="first")
        raise ValueError("no such kernel\nmore of it")

    def goes_on(measured: Mapping[str, float]) -> Iterator[Any]:
        yield line("twice the first", 2 * measured["first"], "s", at_least=3.0)
        yield line("not reached", 0.0, "s")

    report = check.Report({"device": "none"}, tmp_path / "result.json")
    part.run("A", fails(), 60.0, partial(report.add, "A"))
    part.run("B", goes_on(report.measured), 0.0, partial(report.add, "B"))
    first, failure, second, stop = report.lines
    assert (failure.note, failure.is_wrong) == ("ValueError: no such kernel", True)
    assert (second.value, second.verdict) == (2.0, "missed")
    assert stop.what == "stopped: its time is over"
    parts = json.loads((tmp_path / "result.json").read_text())["parts"]
    assert parts == {"A": [first.row(), failure.row()], "B": [second.row(), stop.row()]}
    assert [title for title in ("A", "B") if f"\n{title}\n" in report.table()] == ["A", "B"]


def test_a_process_that_dies_is_wrong_and_what_it_said_before_is_kept(check: Any) -> None:
    said: list[Any] = []
    row = json.dumps(asdict(check.Line("before", 1.0, "s")))
    dies = [sys.executable, "-c", f"import os; print({row!r}, flush=True); os._exit(3)"]
    importlib.import_module("part").listen(dies, 60.0, {}, said.append)
    assert [(one.what, one.is_wrong) for one in said] == [("before", False), (said[1].what, True)]
    assert said[1].what.endswith("ended with 3")


def test_a_number_that_is_none_is_outside_of_every_bound(check: Any) -> None:
    def verdict(value: float, **bounds: Any) -> str:
        return str(check.Line("what", value, "s", **bounds).verdict)

    assert verdict(2.0) == ""
    assert verdict(2.0, at_least=2.0) == "met"
    assert verdict(1.9, at_least=2.0) == "missed"
    assert verdict(0.0, at_most=0.0, is_required=True) == "right"
    assert verdict(math.nan, at_most=1.0, is_required=True) == "WRONG"
    assert verdict(math.nan, at_least=1.0) == "missed"
