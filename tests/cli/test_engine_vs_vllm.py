"""benchmarks/engine_vs_vllm.py without measuring: processes that fail or hang, and what is made of runs."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("engine_vs_vllm")


POLL_S = 0.01


def run(script: Any, code: str, timeout_s: float = 30.0) -> Any:
    starter = script.Starter("vllm", (sys.executable, "-c", f"import os, sys, time\n{code}"), dict(os.environ))
    return script.run(starter, "1x2x3", timeout_s)


def test_the_last_line_of_json_is_the_result(script: Any) -> None:
    code = """
print('warming up')
print('{"kind": "machine"}')
print('{"output_tokens_per_s": 7.5, "point": "%s"}' % sys.argv[1])
"""
    done = run(script, code)
    assert (done.engine, done.point, done.output_tokens_per_s, done.error) == ("vllm", "1x2x3", 7.5, "")
    assert done.details == ({"kind": "machine"}, {"output_tokens_per_s": 7.5, "point": "1x2x3"})


def test_what_a_failed_run_said_is_kept(script: Any) -> None:
    done = run(script, "print('{\"output_tokens_per_s\": 1}'); sys.exit('no room')")
    assert (done.output_tokens_per_s, done.error) == (None, "exit status 1\nno room\n")
    assert run(script, "").error == "nothing was printed\n"


def test_a_run_that_hangs_is_ended_with_all_it_started(script: Any, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"""
child = os.fork()
if child:
    with open({str(file)!r}, 'w') as out: out.write(str(child))
time.sleep(100)
"""
    started_s = time.monotonic()
    assert run(script, code, timeout_s=3.0).error.startswith("not done after 3 s")
    assert time.monotonic() - started_s < 50
    with contextlib.suppress(psutil.NoSuchProcess):  # killed, but perhaps not dead yet
        child = psutil.Process(int(file.read_text()))
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() - started_s < 50
            time.sleep(POLL_S)


def test_ours_is_compared_with_the_better_of_the_peers(script: Any) -> None:
    rates: dict[str, list[float | None]] = {
        "treadle": [30.0, 60.0, 45.0],
        "vllm": [10.0, 14.0],
        "vllm-tuned": [9.0, None],
    }
    runs = [script.Run(engine, "1x2x3", rate) for engine, found in rates.items() for rate in found]
    runs.append(script.Run("treadle", "4x5x6", 100.0))
    assert script.medians(["1x2x3", "4x5x6"], runs) == [
        {"point": "1x2x3", "treadle": 45.0, "vllm": 12.0, "vllm-tuned": 9.0, "ratio": 45.0 / 12.0},
        {"point": "4x5x6", "treadle": 100.0, "vllm": None, "vllm-tuned": None, "ratio": None},
    ]


def test_results_are_replaced_as_a_whole(script: Any, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for number in (1, 2):
        script.save({"num_rounds": number}, file)
        assert json.loads(file.read_text()) == {"num_rounds": number}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_what_cannot_be_is_told_at_once(script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for arguments, words in {
        ("--peer", "nowhere"): "nowhere is no virtual environment; benchmarks/peer.sh makes one",
        ("--peer", sys.prefix, "--points", "1x2"): "'1x2' is no point",
        ("--peer", sys.prefix, "--json", "/nowhere/a.json"): "/nowhere/a.json cannot be written",
    }.items():
        monkeypatch.setattr(sys, "argv", ["engine_vs_vllm.py", *arguments])
        with pytest.raises(SystemExit) as caught:
            script.main()
        assert caught.value.code == 2
        assert words in capsys.readouterr().err
