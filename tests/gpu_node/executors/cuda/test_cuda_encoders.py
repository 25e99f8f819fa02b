"""Encoders on a CUDA device, and the kernels that they alone have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.border.model import LoadedModel
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.memory.largest_step import largest_step
from shared.config.engines.engine import EngineOptions, ModelTask
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import (
    check_close,
    embedded_in_one_step,
    engine_of,
    label_logits,
    means,
    save_encoder,
    scores,
    states,
    write_pooling,
)
from tests.gpu_node.engine.test_encoders import pairs, texts
from tests.gpu_node.gguf_encoders import write_encoder_gguf
from tests.gpu_node.kernels.triton.buffers import DEVICE


def on_device(
    path: Path, asked: list[list[int]], task: ModelTask = "embed", dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """In steps of three texts, each longer than ``step_tokens``."""
    options: dict[str, Any] = {"step_tokens": 16, "max_num_seqs": 3}
    executor = CudaExecutor(EngineOptions(**OPTIONS | options), DEVICE, dtype=dtype)
    return embedded(engine_of(executor, path, task, **options), asked)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path)
    check_close(on_device(tmp_path, texts(5)), means(model, texts(5)))


def test_a_gguf_file_gives_the_bits_of_its_directory(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    assert torch.equal(on_device(path, texts(3)), on_device(tmp_path, texts(3)))


@pytest.mark.parametrize("name", ["bert", "xlm-roberta"])
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path, is_classifier=True)
    check_close(on_device(tmp_path, pairs(), "score"), scores(model, pairs()))


def test_logits_of_labels_are_those_of_transformers(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path, is_classifier=True, num_labels=3)
    check_close(on_device(tmp_path, texts(5), "classify"), label_logits(model, texts(5)))


@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens"])
def test_in_bfloat16(tmp_path: Path, mode: str) -> None:
    model = save_encoder("bert", tmp_path)
    write_pooling(tmp_path, **{mode: True})
    firsts = torch.stack([states(model, text)[0] for text in texts(4)])
    expected = firsts if mode == "cls_token" else means(model, texts(4))
    found = on_device(tmp_path, texts(4), dtype=torch.bfloat16)
    assert float(torch.cosine_similarity(found, expected).min()) > 0.999


def test_scores_in_bfloat16_are_not_rounded(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path, is_classifier=True)
    found = on_device(tmp_path, pairs(), "score", torch.bfloat16)
    assert not torch.equal(found, found.bfloat16().float())
    torch.testing.assert_close(found, scores(model, pairs()), rtol=0.1, atol=0.1)


def test_whatever_the_budget_of_a_step_a_text_is_computed_in_one(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    found = []
    for step_tokens in (16, 1024):
        options: dict[str, Any] = {"step_tokens": step_tokens, "async_scheduling": False}
        executor = CudaExecutor(EngineOptions(**OPTIONS | options), DEVICE, dtype=torch.float32)
        found.append(embedded_in_one_step(engine_of(executor, tmp_path, **options), range(5, 65)))
    assert torch.equal(*found)


@pytest.mark.parametrize(("step_tokens", "num_rows"), [(100, [1, 111, 200, 200]), (600, [1, 199, 200, 200])])
def test_the_largest_step_is_of_whole_texts(step_tokens: int, num_rows: list[int]) -> None:
    """Of 512 tokens, where ``step_tokens`` are less."""
    model = LoadedModel("m", 64, 16, 0, 201, 300, frozenset(), task="embed", is_encoder=True)
    plan = largest_step(model, EngineOptions(step_tokens=step_tokens, max_num_seqs=4))
    assert [(part.start, len(part.token_ids)) for part in plan.sequences] == [(0, num) for num in num_rows]
