"""Tiny models made once, and the real one where it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import model_path

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

INTERPRETER = "triton.runtime.interpreter"

# torch is imported where it is used: to import it takes as long as all tests here that compute nothing with it


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    if "torch" not in sys.modules:  # no test module has imported it
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _one_thread_again() -> Iterator[None]:
    """Whoever makes an executor with more sets torch's threads for the process, and they wait for work in a loop."""
    yield
    if "torch" in sys.modules:
        import torch

        if torch.get_num_threads() > 1:
            torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _quick_interpreter() -> None:
    if INTERPRETER in sys.modules:
        from tests.gpu_node.quick_interpreter import quicken

        quicken()


@pytest.fixture(scope="session")
def tiny_model() -> LlamaForCausalLM:
    from tests.gpu_node import tiny

    return tiny.make_model()


@pytest.fixture(scope="session")
def tiny_path(tiny_model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.gpu_node import tiny

    return tiny.write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", tiny.tensors_of(tiny_model))


@pytest.fixture(scope="session")
def real_model(model_file: Path) -> ModelSpec:
    """The default cluster's model, whose file is there."""
    spec = ClusterConfig().models[0]
    assert model_path(spec) == model_file
    return spec
