"""The first request meets no compiler: what steps of any kind launch was compiled when the model was loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.gpu_node.kernels.triton.kept_code import compiling_environment
from tests.gpu_node.models.test_families_models import save


def test_no_step_behind_the_warm_up_compiles_anything(tmp_path: Path) -> None:
    """A mixture of experts has every kind of launch that depends on how many rows there are.

    A kernel is told when a process first loads it, whether its code had been kept or not.
    """
    save("mixtral", tmp_path / "model")
    command = [sys.executable, "-m", "tests.gpu_node.kernels.triton.compiling_steps", str(tmp_path / "model")]
    done = subprocess.run(command, env=compiling_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warm_up, steps = done.stdout.split("steps:")
    kernels = {line.split()[0] for line in warm_up.splitlines()[1:]}
    assert {
        "_lookup",
        "_norm",
        "_write_kv",
        "_decode",
        "_combine",
        "_prefill",
        "_gates",
        "_penalise",
        "_draw",
    } <= kernels
    assert steps.split() == []
