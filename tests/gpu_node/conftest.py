"""Tiny models made once, and the real one where it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from gpu_node.kernels import cpu
from shared.config.config import ClusterConfig
from shared.config.engine import ModelSpec
from shared.files.model_file import model_path
from tests.gpu_node import tiny


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model() -> LlamaForCausalLM:
    return tiny.make_model()


@pytest.fixture(scope="session")
def tiny_path(tiny_model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tiny.tensors_of(tiny_model))


@pytest.fixture(scope="session")
def real_model(model_file: Path) -> ModelSpec:
    """The default cluster's model, whose file is there."""
    spec = ClusterConfig().models[0]
    assert model_path(spec) == model_file
    return spec


@pytest.fixture(params=cpu.LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    """Each level of the CPU kernels that this machine has."""
    if cpu.level(request.param) is None:
        pytest.skip(f"this machine has no {request.param}")
    name: str = request.param
    return name
