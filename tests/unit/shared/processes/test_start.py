"""What processes import when they start."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from shared.processes.start import NOT_IMPORTED, begin


@pytest.mark.parametrize("arguments", [["services.scheduler"], ["gpu_node.agent", "--node", "node-0"]])
def test_a_process_imports_neither_rich_nor_opentelemetry_s_metrics(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", *arguments],
        env=os.environ | {"TREADLE_CONFIG": "/there/is/none.yaml"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "/there/is/none.yaml" in done.stderr, "it went as far as its configuration"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert {"structlog.dev", "redis"} <= imported
    assert not [name for name in imported if name.startswith(tuple(f"{one}." for one in NOT_IMPORTED))]


IMPORTS_AND_RUNS = """
import gc, importlib, runpy, sys
module, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = "-m"
importlib.import_module(module)
told = [gc.isenabled()]
try:
    runpy.run_module(module, run_name="__main__")
except BaseException:  # an engine misses its socket, too
    told.append(gc.isenabled())
print(told)
"""


@pytest.mark.parametrize("arguments", [["services.kv_manager"], ["gpu_node.engine", "--node", "n", "--fd", "-1"]])
def test_garbage_is_looked_for_once_a_process_runs_and_not_while_it_imports(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_AND_RUNS, *arguments],
        env=os.environ | {"TREADLE_CONFIG": "/there/is/none.yaml"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1:] == ["[False, True]"], done.stderr


def test_a_package_that_another_program_imports_leaves_it_everything() -> None:
    begin()
    assert importlib.import_module(NOT_IMPORTED[0]).__name__ == NOT_IMPORTED[0]
