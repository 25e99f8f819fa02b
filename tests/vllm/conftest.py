"""A real vLLM on this machine's CPUs, and SmolLM2 in the layout that it reads. `make test-vllm` says where it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_node.engine.process.protocol.protocol import ModelLoaded, Reset
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.nodes import PYTHON_ENV, exported, ready, write_config

TEST_TIMEOUT_S = 600  # with what it starts, on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder; files with tests that share a process of vLLM run in one process of pytest."""
    here = Path(__file__).parent
    sharing = {item.path for item in items if "running" in getattr(item, "fixturenames", ())}
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
            if item.path in sharing:
                item.add_marker(pytest.mark.xdist_group("one process of vLLM"))


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of the environment; without it nothing here can run."""
    path = os.environ.get(PYTHON_ENV)
    if not path:
        pytest.skip(f"{PYTHON_ENV} names no environment; `make test-vllm` makes one")
    return Path(path)


@pytest.fixture(scope="session")
def smol(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a directory."""
    return exported(model_file, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def config_path(smol: Path, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One node with vLLM."""
    return write_config(tmp_path_factory.mktemp("node"), smol, vllm_python)


@pytest.fixture(scope="session")
def running(config_path: Path, vllm_python: Path) -> Iterator[Agent]:
    """One process for the tests that leave it alive; a load takes half a minute."""
    with ready(config_path, vllm_python) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    """The process with SmolLM2 and no requests."""
    running.send(Reset())
    running.next()
    assert isinstance(running.load("smol"), ModelLoaded)
    return running
