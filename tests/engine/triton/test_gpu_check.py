"""`make gpu-check` says what it needs where there is no device, and measures nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_node.kernels.triton.launch import INTERPRETED

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu" / "check.py"


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
