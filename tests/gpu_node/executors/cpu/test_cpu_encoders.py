"""Encoders on the CPU device: each family on each level of the kernels; bits hang neither on batch nor on threads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.models.hf.hf_config import read_hf_config
from shared.config.engines.engine import EngineOptions, ModelSpec, ModelTask
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import (
    FAMILIES,
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

SIMILARITY = 0.999
"""Least cosine beside float32: of bfloat16 through tiny models, whose large random weights make an error grow."""
CLOSE = 0.1
"""Of logits, likewise."""


def on_cpu(path: Path, asked: list[list[int]], task: ModelTask = "embed", level: str = "") -> torch.Tensor:
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 2, level=level)) as executor:
        return embedded(engine_of(executor, path, task), asked)


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_those_of_transformers(name: str, tmp_path: Path, level: str) -> None:
    model = save_encoder(name, tmp_path)
    similarity = torch.cosine_similarity(on_cpu(tmp_path, texts(9), level=level), means(model, texts(9)))
    assert float(similarity.min()) > SIMILARITY


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path, is_classifier=True)
    assert float((on_cpu(tmp_path, pairs(), "score") - scores(model, pairs())).abs().max()) < CLOSE


def test_the_first_token_as_the_files_ask_for_it(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    write_pooling(tmp_path, cls_token=True)
    expected = torch.stack([states(model, text)[0] for text in texts(5)])
    assert float(torch.cosine_similarity(on_cpu(tmp_path, texts(5)), expected).min()) > SIMILARITY


@pytest.mark.parametrize(("task", "pooling"), [("embed", "mean_tokens"), ("embed", "cls_token"), ("score", "")])
def test_no_bit_hangs_on_how_texts_are_computed(tmp_path: Path, task: ModelTask, pooling: str) -> None:
    save_encoder("bert", tmp_path, is_classifier=True)
    write_pooling(tmp_path, **{pooling: True})
    asked = [*texts(25), *pairs()]  # more than a step of 512 tokens
    with closing(CpuExecutor(EngineOptions(**OPTIONS), 1, optimize=False)) as executor:
        engine = engine_of(executor, tmp_path, task)
        plain = torch.cat([embedded(engine, [text]) for text in asked])
    several: tuple[dict[str, Any], ...] = ({"step_tokens": 1024}, {"step_tokens": 16, "block_size": 16})
    for options in (*several, {"async_scheduling": False}):
        chosen = EngineOptions(**OPTIONS | options)
        with closing(CpuExecutor(chosen, 2, passes=[insert_polls])) as executor:
            assert torch.equal(embedded(engine_of(executor, tmp_path, task, **options), asked), plain)


def test_whatever_the_budget_of_a_step_a_text_is_computed_in_one(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path, max_position_embeddings=700)
    for length, more in ((60, 1024), (512, 512)):
        found = []
        for step_tokens in (16, more):
            options: dict[str, Any] = {"step_tokens": step_tokens, "async_scheduling": False}
            with closing(CpuExecutor(EngineOptions(**OPTIONS | options), 2)) as executor:
                engine = engine_of(executor, tmp_path, **options)
                found.append(embedded_in_one_step(engine, [5 + number % 200 for number in range(length)]))
        assert torch.equal(*found)


def test_int8_weights_are_those_of_the_reference(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    options, found = EngineOptions(**OPTIONS), []
    with closing(CpuExecutor(options, 2)) as cpu:
        for executor in (cpu, ReferenceExecutor(options)):
            engine = Engine(executor, options)
            engine.load_model(ModelSpec(name="tiny", source=str(tmp_path), task="embed", weights="int8"))
            found.append(embedded(engine, texts(5)))
    assert float(torch.cosine_similarity(found[0], found[1]).min()) > SIMILARITY


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_labels_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path, is_classifier=True, num_labels=3)
    found = on_cpu(tmp_path, texts(5), "classify")
    assert float((found - label_logits(model, texts(5))).abs().max()) < CLOSE
    alone = torch.cat([on_cpu(tmp_path, [text], "classify") for text in texts(5)])
    assert torch.equal(found, alone)


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_a_gguf_file_gives_the_bits_of_its_directory(tmp_path: Path, weights: Any) -> None:
    save_encoder("bert", tmp_path)
    options, found = EngineOptions(**OPTIONS), []
    for path in (tmp_path, write_encoder_gguf(tmp_path / "m.gguf", tmp_path)):
        with closing(CpuExecutor(options, 2)) as executor:
            engine = Engine(executor, options)
            engine.load_model(ModelSpec(name="tiny", source=str(path), task="embed", weights=weights))
            found.append(embedded(engine, texts(9)))
    assert torch.equal(*found)


def test_a_text_as_long_as_the_positions(tmp_path: Path) -> None:
    model = save_encoder("roberta", tmp_path)
    longest = [[5 + number % 200 for number in range(read_hf_config(tmp_path).context_length)]]
    assert float(torch.cosine_similarity(on_cpu(tmp_path, longest), means(model, longest))) > SIMILARITY
