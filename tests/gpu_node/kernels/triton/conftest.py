"""Kernels run on a CUDA device where there is one, else by Triton's interpreter on the CPU (see tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The interpreter takes seconds."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)


def pytest_report_header() -> str | None:
    """Say what is left out."""
    if find_spec("triton") is None:
        return "tests/gpu_node/kernels/triton: left out, since Triton is not installed (pip install 'treadle[cuda]')"
    return None


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Each time: of single numbers, one in thousands lies where a function's relative error is large."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def signed() -> Iterator[None]:
    """The interpreter's types know their signs only while a kernel runs; here they do throughout a test."""
    import triton.language as tl
    from triton.runtime import interpreter

    scope = interpreter._LangPatchScope()
    interpreter._patch_lang_core(tl.core, scope)
    yield
    scope.restore()
