"""Kernels run on a CUDA device where there is one, else by Triton's interpreter on the CPU (see tests/conftest.py)."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> str | None:
    """Say what is left out."""
    if find_spec("triton") is None:
        return "tests/gpu_node/executors/cuda: left out, since Triton is not installed (pip install 'treadle[cuda]')"
    return None
