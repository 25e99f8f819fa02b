"""`make test-fast` finds its tests: what imports torch is left out of it by name, and a new module has to be named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLLECT_TIMEOUT_S = 240


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
    (command,) = [line for line in asked.stdout.splitlines() if "--ignore=" in line]
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=COLLECT_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
