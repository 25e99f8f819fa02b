"""Models that score: the answer is a few logits behind a text's last token, of two tokens or of a label."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.scoring import ScoreOptions
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import modules_of, save_adapter
from tests.gpu_node.embedding_model import OPTIONS, embedded, embeddings, request, texts
from tests.gpu_node.gguf_files import tensors_of, write_gguf
from tests.gpu_node.score_model import (
    NO,
    YES,
    engine_of,
    expected,
    save_classifier,
    save_language_model,
    spec,
    write_words,
)

CLOSE: dict[str, Any] = {"rtol": 2e-4, "atol": 2e-4}
COMMON = list(range(20, 40))
ASKED = [*texts(5), COMMON, [*COMMON, 50], [*COMMON, 51]]


def reference(path: Path, **options: Any) -> Any:
    return engine_of(ReferenceExecutor(EngineOptions(**OPTIONS | options)), path, **options)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
def test_logits_of_two_tokens_are_those_of_transformers(name: str, tied: bool, tmp_path: Path) -> None:
    model = save_language_model(name, tmp_path, tie_word_embeddings=tied)
    engine = reference(tmp_path, step_tokens=7)
    for _ in range(2):  # the second time, all but the last block is cached
        torch.testing.assert_close(embedded(engine, ASKED), expected(model, ASKED), **CLOSE)
    assert engine.counts.prefix_cached_tokens > 2 * len(COMMON)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_classifiers_logit_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_classifier(name, tmp_path)
    engine = reference(tmp_path, step_tokens=7)
    for _ in range(2):
        torch.testing.assert_close(embedded(engine, ASKED), expected(model, ASKED), **CLOSE)


def test_the_program_has_two_rows_of_the_head_and_no_more(tmp_path: Path) -> None:
    save_language_model("qwen3", tmp_path)
    engine = reference(tmp_path)
    (found,) = embedded(engine, [[5, 6, 7]])
    assert found.shape == (2,)
    (chunk,) = engine.add(tiny.request("a", [5], 4))
    assert (chunk.finish_reason, chunk.error) == ("refused", "'tiny' gives scores and no text (task: score)")


@pytest.mark.slow
def test_adapters_of_a_judge_are_served_beside_it(tmp_path: Path) -> None:
    model = save_language_model("qwen3", tmp_path / "model")
    merged = save_adapter(model, tmp_path / "legal", modules_of("qwen3"))
    options = EngineOptions(**OPTIONS)
    engine = Engine(ReferenceExecutor(options), options)
    engine.load_model(spec(tmp_path / "model", adapters=(AdapterSpec("legal", str(tmp_path / "legal")),)))
    asked = [
        replace(request(f"{number}{name}", text), adapter=name)
        for number, text in enumerate(ASKED)
        for name in ("", "legal")
    ]
    found = embeddings(engine, asked)
    torch.testing.assert_close(found[0::2], expected(model, ASKED), **CLOSE)
    torch.testing.assert_close(found[1::2], expected(merged, ASKED), **CLOSE)


def test_a_classifier_of_more_labels_is_refused(tmp_path: Path) -> None:
    save_classifier("qwen3", tmp_path / "two", num_labels=2)
    with pytest.raises(ModelFileError, match="it is a classifier with 2 labels; task: score takes one of one label"):
        reference(tmp_path / "two")
    save_classifier("llama", tmp_path / "three", num_labels=3)
    with pytest.raises(ModelFileError, match="it is a classifier with 3 labels"):
        reference(tmp_path / "three")


def test_a_classifier_whose_tokens_see_those_behind_them_is_refused(tmp_path: Path) -> None:
    save_classifier("qwen2", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"is_causal": False}))
    with pytest.raises(
        ModelFileError, match=r"see those behind them \(is_causal\); task: score takes the last token's"
    ):
        reference(tmp_path)


def test_a_label_that_is_no_token_is_refused(tmp_path: Path) -> None:
    save_language_model("qwen3", tmp_path)
    engine = ReferenceExecutor(EngineOptions(**OPTIONS))
    with pytest.raises(ModelFileError, match=r"no token stands for 'maybe' alone; set score\.labels to the texts of"):
        engine.load_model(spec(tmp_path, score=ScoreOptions(labels=("no", "maybe"))))


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    path = tmp_path_factory.mktemp("qwen3")
    return path, save_language_model("qwen3", path, tie_word_embeddings=False)


def gguf(qwen3: tuple[Path, Any], path: Path, head: np.ndarray[Any, Any] | None, labels: list[str] | None) -> Path:
    """As llama.cpp converts a re-ranker: its rows of the head are ``head``; None for a whole head."""
    tensors = tensors_of(qwen3[0])
    if head is not None:
        del tensors["output.weight"]
        tensors["cls.output.weight"] = head
    vocab = [f"t{token}" for token in range(tiny.VOCAB)]
    vocab[NO], vocab[YES] = "no", "yes"
    keys: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": vocab}
    keys |= {"tokenizer.ggml.merges": ["n o"], "tokenizer.ggml.eos_token_id": tiny.EOS}
    if labels is not None:
        keys["qwen3.classifier.output_labels"] = labels
    return write_gguf(path, qwen3[0], tensors=tensors, keys=keys)


def test_a_gguf_files_own_rows_come_in_the_order_of_its_labels(qwen3: tuple[Path, Any], tmp_path: Path) -> None:
    rows = qwen3[1].lm_head.weight.detach().numpy()[[YES, NO]]  # yes first, as llama.cpp has it
    path = gguf(qwen3, tmp_path / "re-ranker.gguf", rows, ["yes", "no"])
    torch.testing.assert_close(embedded(reference(path), ASKED), expected(qwen3[1], ASKED), **CLOSE)


def test_a_gguf_file_with_a_whole_head_gives_its_rows(qwen3: tuple[Path, Any], tmp_path: Path) -> None:
    path = gguf(qwen3, tmp_path / "whole.gguf", None, None)
    torch.testing.assert_close(embedded(reference(path), ASKED), expected(qwen3[1], ASKED), **CLOSE)


@pytest.mark.parametrize(
    ("num_rows", "labels", "problem"),
    [
        (2, None, r"its classifier answers by \[\] \(classifier.output_labels\), and not by \['no', 'yes'\]"),
        (2, ["good", "bad"], r"its classifier answers by \['good', 'bad'\]"),
        (
            3,
            ["a", "b", "c"],
            r"tensor cls.output.weight has shape \(3, 32\); task: score takes \(1, 32\), or \(2, 32\)",
        ),
    ],
)
def test_a_gguf_file_with_other_labels_is_refused(
    qwen3: tuple[Path, Any], tmp_path: Path, num_rows: int, labels: list[str] | None, problem: str
) -> None:
    path = gguf(qwen3, tmp_path / "other.gguf", np.ones((num_rows, 32), dtype=np.float32), labels)
    with pytest.raises(ModelFileError, match=problem):
        reference(path)


def test_a_logit_that_is_not_finite_is_an_error(qwen3: tuple[Path, Any], tmp_path: Path) -> None:
    rows = np.full((1, 32), np.nan, dtype=np.float32)
    engine = reference(gguf(qwen3, tmp_path / "nan.gguf", rows, None))
    assert engine.add(request("a", [5])) == []
    (chunk,) = [chunk for told in tiny.steps(engine) for chunk in told]
    assert (chunk.finish_reason, chunk.embedding) == ("error", b"")


def test_a_predicted_device_makes_logits_up(model_file: Path) -> None:
    options = EngineOptions(block_size=16)
    executor = VirtualExecutor("a100", options)
    engine = engine_of(executor, model_file, block_size=16, kv_cache_bytes=None)
    first, again, other = embedded(engine, [[5, 6, 7], [5, 6, 7], [5, 6, 8]])
    assert len(first) == 2
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_predicted_device_refuses_what_no_device_serves(tmp_path: Path) -> None:
    save_classifier("qwen3", tmp_path, num_labels=2)
    with pytest.raises(ModelFileError, match="a classifier with 2 labels"):
        VirtualExecutor("a100", EngineOptions()).load_model(spec(tmp_path))


def test_made_up_weights_score(tmp_path: Path) -> None:
    save_language_model("qwen3", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    executor = ReferenceExecutor(EngineOptions(**OPTIONS))

    engine = Engine(executor, EngineOptions(**OPTIONS))
    engine.load_model(spec(tmp_path, load_format="dummy"))
    assert embedded(engine, [[5, 6]]).shape == (1, 2)


def test_the_configuration_says_what_a_model_is_for(tmp_path: Path) -> None:
    write_words(tmp_path)
    assert ModelSpec(name="tiny", source=str(tmp_path)).score == ScoreOptions()
    assert spec(tmp_path).task == "score"
