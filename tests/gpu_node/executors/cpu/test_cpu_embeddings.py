"""Models that embed on the CPU device: every family, on each level of the kernels, in batches, chunks and lanes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.polls import insert_polls
from shared.config.engines.engine import EngineOptions
from shared.config.pipelines.pipelines import Pipelines, cpu_name
from tests.gpu_node.embedding_model import OPTIONS, embedded, engine_of, expected, texts
from tests.gpu_node.models.test_families_models import FAMILIES, save
from tests.gpu_node.random_pipelines import random_pipeline

SIMILARITY = 0.99
"""Least cosine beside float32: of bfloat16 through tiny models, whose large random weights make an error grow."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path, level: str) -> None:
    model = save(name, tmp_path)
    asked = texts(9, longest=60)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, level=level)) as executor:
        found = embedded(engine_of(executor, tmp_path, step_tokens=33), asked)
    similarity = torch.cosine_similarity(found, expected(model, asked))
    assert float(similarity.min()) > SIMILARITY


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[tuple[Path, torch.Tensor]]:
    """A model, and its embeddings by the plain path, text by text."""
    save("qwen3", tmp_path)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1, optimize=False)) as executor:
        engine = engine_of(executor, tmp_path)
        yield tmp_path, torch.cat([embedded(engine, [text]) for text in texts(9)])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 12, 40])
def test_nor_on_the_lanes_of_a_pipeline(plain: tuple[Path, torch.Tensor], rows: int) -> None:
    path, expected_bits = plain
    pipelines = Pipelines("any.json", rows, (random_pipeline(rows, rows=rows, device=cpu_name(2)),))
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, pipelines=pipelines)) as executor:
        engine = engine_of(executor, path, step_tokens=40)
        assert torch.equal(embedded(engine, texts(9)), expected_bits)
        assert engine.counts.num_piped > 0


@pytest.mark.slow
@pytest.mark.parametrize("passes", [[], [insert_polls]], ids=["optimised", "polls"])
def test_no_bit_hangs_on_how_a_text_is_computed(plain: tuple[Path, torch.Tensor], passes: list[Pass]) -> None:
    path, expected_bits = plain
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, passes=passes)) as executor:
        assert torch.equal(embedded(engine_of(executor, path, step_tokens=40), texts(9)), expected_bits)
