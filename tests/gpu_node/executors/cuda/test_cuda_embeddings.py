"""Models that embed on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.executors.cuda.executor import CudaExecutor
from shared.config.engines.engine import EngineOptions
from tests.gpu_node.embedding_model import OPTIONS, embedded, engine_of, expected, texts
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.models.test_families_models import save


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    asked = texts(5)
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=torch.float32)
    found = embedded(engine_of(executor, tmp_path, step_tokens=20), asked)
    torch.testing.assert_close(found, expected(model, asked), rtol=1e-3, atol=1e-3)


def test_in_bfloat16_the_last_norm_is_not_rounded(tmp_path: Path) -> None:
    model = save("llama", tmp_path)
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=torch.bfloat16)
    found = embedded(engine_of(executor, tmp_path), texts(3))
    assert not torch.equal(found, found.bfloat16().float())
    assert float(torch.cosine_similarity(found, expected(model, texts(3))).min()) > 0.99
