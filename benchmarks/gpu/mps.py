"""NVIDIA's Multi-Process Service (MPS): with it, processes compute on a device at the same time, not in turns."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Of the processors, that a process may use at a time."""
QUIT_S = 5
"""That the service waits for processes that have not ended."""


@contextmanager
def sharing(folder: Path) -> Iterator[dict[str, str]]:
    """What processes find in their environment that compute on the device at the same time; nothing without MPS.

    The service is one of ``folder`` alone: others do not see it. It ends when all of these processes have.
    """
    program = shutil.which(CONTROL)
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    all_of_it = os.environ | environment
    if program is None or subprocess.run([program, "-d"], env=all_of_it, check=False).returncode:
        yield {}
        return
    try:
        yield environment
    finally:
        subprocess.run([program], input=f"quit -t {QUIT_S}\n", text=True, env=all_of_it, check=False)
