"""Models that score on the CPU device: on each level of the kernels, in batches, chunks and over cached prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.polls import insert_polls
from shared.config.engines.engine import EngineOptions
from tests.gpu_node.embedding_model import OPTIONS, embedded, texts
from tests.gpu_node.score_model import engine_of, expected, save_classifier, save_language_model, spec

COMMON = list(range(20, 50))
ASKED = [*texts(9, longest=60), *([*COMMON, token, token + 1] for token in range(50, 70))]
SAVES: list[Callable[[str, Path], Any]] = [save_language_model, save_classifier]
SIMILARITY = 0.99
"""Least correlation beside float32: of bfloat16 through tiny models, whose large random weights make an error grow."""


@pytest.mark.slow
@pytest.mark.parametrize("save", SAVES)
def test_logits_are_those_of_transformers(save: Callable[[str, Path], Any], tmp_path: Path, level: str) -> None:
    model = save("qwen3", tmp_path)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, level=level)) as executor:
        found = embedded(engine_of(executor, tmp_path, step_tokens=33), ASKED)
    assert found.shape == (len(ASKED), 2 if save is save_language_model else 1)
    assert float(torch.corrcoef(torch.stack([found.flatten(), expected(model, ASKED).flatten()]))[0, 1]) > SIMILARITY


@pytest.fixture(params=SAVES)
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, torch.Tensor]]:
    """A model, and its logits by the plain path, text by text, with nothing cached."""
    request.param("qwen3", tmp_path)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1, optimize=False)) as executor:
        rows = []
        for text in ASKED:
            rows.append(embedded(engine_of(executor, tmp_path), [text]))
            executor.unload_model("tiny")
        yield tmp_path, torch.cat(rows)


@pytest.mark.slow
@pytest.mark.parametrize("passes", [[], [insert_polls]], ids=["optimised", "polls"])
def test_no_bit_hangs_on_how_a_text_is_computed(plain: tuple[Path, torch.Tensor], passes: list[Pass]) -> None:
    path, expected_bits = plain
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, passes=passes)) as executor:
        engine = engine_of(executor, path, step_tokens=40)
        assert torch.equal(embedded(engine, ASKED), expected_bits)
        before = engine.counts.prefix_cached_tokens
        assert torch.equal(embedded(engine, ASKED[::-1]), expected_bits.flip(0))  # over what is cached now
        assert engine.counts.prefix_cached_tokens > before + 10 * 28


@pytest.mark.slow
def test_nor_on_who_waits_for_a_common_beginning(plain: tuple[Path, torch.Tensor]) -> None:
    path, expected_bits = plain
    large: dict[str, int] = {"step_tokens": 2048, "max_num_seqs": 64}
    with closing(CpuExecutor(EngineOptions(**OPTIONS | large), 2)) as executor:
        engine = engine_of(executor, path, **large)
        assert torch.equal(embedded(engine, ASKED), expected_bits)
        assert engine.counts.prefix_cached_tokens == 19 * 28


@pytest.mark.slow
def test_weights_of_8_bits_score_too(tmp_path: Path) -> None:
    model = save_language_model("qwen3", tmp_path)
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1)) as executor:
        engine = Engine(executor, EngineOptions(**OPTIONS))
        engine.load_model(spec(tmp_path, weights="int8"))
        found = embedded(engine, ASKED)
    assert float(torch.corrcoef(torch.stack([found.flatten(), expected(model, ASKED).flatten()]))[0, 1]) > 0.95
