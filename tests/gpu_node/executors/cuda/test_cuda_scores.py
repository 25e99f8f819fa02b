"""Models that score on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.executors.cuda.executor import CudaExecutor
from shared.config.engines.engine import EngineOptions
from tests.gpu_node.embedding_model import OPTIONS, embedded, texts
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.score_model import engine_of, expected, save_classifier, save_language_model


@pytest.mark.parametrize("save", [save_language_model, save_classifier])
def test_logits_are_those_of_transformers(save: Callable[[str, Path], Any], tmp_path: Path) -> None:
    model = save("qwen3", tmp_path)
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=torch.float32)
    engine = engine_of(executor, tmp_path, step_tokens=20)
    found = embedded(engine, texts(5))
    torch.testing.assert_close(found, expected(model, texts(5)), rtol=1e-3, atol=1e-3)


def test_in_bfloat16_logits_are_not_rounded(tmp_path: Path) -> None:
    model = save_language_model("qwen3", tmp_path)
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=torch.bfloat16)
    found = embedded(engine_of(executor, tmp_path), texts(9))
    assert not torch.equal(found, found.bfloat16().float())
    both = torch.stack([found.flatten(), expected(model, texts(9)).flatten()])
    assert float(torch.corrcoef(both)[0, 1]) > 0.99
