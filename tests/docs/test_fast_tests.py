"""`make test-fast` finds its tests: what imports torch is left out of it by name, and a new module has to be named.

What has a real Redis, a cluster or many examples is left out by marks.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLLECT_TIMEOUT_S = 240
NUM_TESTS = 4000
"""At least."""
LEFT_OUT = (
    "tests/redis/",  # a real Redis
    "tests/e2e/",  # a cluster
    "tests/helm/test_cluster.py",  # the chart
    "tests/gateway/generation/test_stop_strings.py::test_pieces_give_what_the_whole_text_gives",  # many examples
)
"""How ids of tests begin that have their marks from fixtures, folders and examples."""


@pytest.mark.slow
def test_tests_without_tensors_are_collected_without_torch() -> None:
    """The command is asked for and run here: `make` itself could install something first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MAKE"))}
    asked = subprocess.run(
        ["make", "-n", "test-fast", "JOBS=0", "ARGS=--collect-only -q -p no:cacheprovider"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (command,) = [line for line in asked.stdout.splitlines() if "TREADLE_NO_TENSORS=" in line]
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COLLECT_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    tests = [line for line in done.stdout.splitlines() if "::" in line]
    assert len(tests) > NUM_TESTS
    assert [test for test in tests if test.startswith(LEFT_OUT)] == []
