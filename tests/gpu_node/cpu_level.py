"""The levels of the CPU kernels, for the tests that run on each."""

from __future__ import annotations

import pytest

from gpu_node.kernels import cpu


@pytest.fixture(params=cpu.LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    """Each level of the CPU kernels that this machine has."""
    if cpu.level(request.param) is None:
        pytest.skip(f"this machine has no {request.param}")
    name: str = request.param
    return name
