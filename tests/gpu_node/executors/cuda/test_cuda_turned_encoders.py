"""Encoders with rotary positions on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.executors.cuda.executor import CudaExecutor
from shared.config.engines.engine import EngineOptions, ModelTask
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import check_close, engine_of, label_logits, means
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.turned_encoders import TURNED, save_turned, texts


def on_cuda(
    path: Path, asked: list[list[int]], task: ModelTask = "embed", dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    executor = CudaExecutor(EngineOptions(**OPTIONS), DEVICE, dtype=dtype)
    return embedded(engine_of(executor, path, task), asked)


@pytest.mark.parametrize("name", TURNED)
def test_on_a_cuda_device(name: str, tmp_path: Path) -> None:
    model = save_turned(name, tmp_path)
    asked = texts(1, 8, 65)
    check_close(on_cuda(tmp_path, asked), means(model, asked))


def test_a_classifier_on_a_cuda_device(tmp_path: Path) -> None:
    model = save_turned("modernbert", tmp_path, is_classifier=True, num_labels=3)
    check_close(on_cuda(tmp_path, texts(8), "classify"), label_logits(model, texts(8)))


def test_in_bfloat16(tmp_path: Path) -> None:
    model = save_turned("modernbert", tmp_path)
    found = on_cuda(tmp_path, texts(1, 40), dtype=torch.bfloat16)
    assert float(torch.cosine_similarity(found, means(model, texts(1, 40))).min()) > 0.998
