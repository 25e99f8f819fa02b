"""What a directory says of how it embeds and scores, as vLLM is told it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_node.executors.model_check import load_problem
from gpu_node.models.architectures.encoder import Pooling
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.pooling.pooled_directory import PooledDirectory, PoolingMode, read_pooled
from gpu_node.models.pooling.pooling import encoder_pooling
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.scoring import ScoreOptions
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import ModelFileError
from tests.gateway.encoder_tiny import write_encoder
from tests.gpu_node import score_model, tiny
from tests.gpu_node.models.pooling.test_pooling import DENSE, MODULES

CAUSAL = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": tiny.VOCAB}
CLASSIFIER = {"architectures": ["Qwen3ForSequenceClassification"], "vocab_size": tiny.VOCAB}


def written(folder: Path, modules: Any = None, pooling: Any = None, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(CAUSAL | config))
    score_model.write_words(folder)
    if modules is not None:
        (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def of(task: Any, path: Path, num_ranks: int = 1) -> PooledDirectory:
    return read_pooled(ModelSpec(name="m", source=str(path), task=task), path, num_ranks)


@pytest.mark.parametrize(
    ("pooling", "mode"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode_lasttoken": True, "word_embedding_dimension": 8}, "lasttoken"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_states_are_pooled_as_the_files_say(tmp_path: Path, pooling: Any, mode: PoolingMode) -> None:
    assert of("embed", written(tmp_path, MODULES, pooling)) == PooledDirectory(mode, None)


def test_files_that_say_nothing_leave_it_to_vllm(tmp_path: Path) -> None:
    assert of("embed", written(tmp_path)) == PooledDirectory(None, None)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlm-roberta"])
def test_encoders_whose_files_say_nothing_are_pooled_as_by_our_engine(tmp_path: Path, model_type: str) -> None:
    path = written(tmp_path, model_type=model_type)
    assert of("embed", path) == PooledDirectory("mean", None)
    write_encoder(path, model_type)
    assert encoder_pooling(open_checkpoint(path)) is Pooling.MEAN


@pytest.mark.parametrize(
    ("files", "error"),
    [
        (
            {"modules": MODULES, "pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
            "1_Pooling/config.json: its embeddings are pooled by max_tokens, mean_tokens; supported are",
        ),
        ({"modules": MODULES, "pooling": {}}, "its embeddings are pooled by nothing; supported are lasttoken, mean"),
        ({"modules": MODULES, "pooling": {"pooling_mode": "weightedmean"}}, "pooled by weightedmean; supported are"),
        ({"modules": MODULES}, "1_Pooling/config.json cannot be read as JSON"),
        ({"modules": DENSE}, "modules.json: module 0 is 'Dense', which is not supported"),
    ],
)
def test_other_ways_to_embed_are_refused_by_name(tmp_path: Path, files: dict[str, Any], error: str) -> None:
    path = written(tmp_path, **files)
    with pytest.raises(ModelFileError, match=error):
        of("embed", path)
    spec = ModelSpec(name="m", source=str(path), task="embed")
    assert error in load_problem(spec, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 30)


def test_labels_go_by_the_names_that_their_tokens_have(tmp_path: Path) -> None:
    """A token of a byte-level vocabulary that begins with a space has another name than text."""
    path = written(tmp_path)
    assert of("score", path) == PooledDirectory(None, ("no", "yes"))
    words = path / "tokenizer.json"
    words.write_text(words.read_text().replace('"no"', '"\\u0120no"'))
    spaced = ModelSpec(name="m", source=str(path), task="score", score=ScoreOptions(labels=(" no", "yes")))
    assert read_pooled(spaced, path, 1) == PooledDirectory(None, ("\u0120no", "yes"))
    with pytest.raises(ModelFileError, match="no token stands for 'oui' alone; set"):
        read_pooled(replace(spaced, score=ScoreOptions(labels=(" no", "oui"))), path, 1)


def test_a_classifier_of_one_label_has_a_head_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, **CLASSIFIER, num_labels=1)
    assert of("score", path, num_ranks=2) == PooledDirectory(None, None)


@pytest.mark.parametrize(
    ("config", "num_ranks", "error"),
    [
        (CLASSIFIER | {"num_labels": 3}, 1, "it is a classifier with 3 labels; task: score takes one of one label"),
        (CLASSIFIER, 1, "it is a classifier with 2 labels; task: score takes one of one label"),
        (CLASSIFIER | {"num_labels": 1, "type_vocab_size": 2}, 1, "query and document are of two types "),
        ({}, 2, "model 'm': vLLM takes the rows of labels from the part of the head that a rank has; set tensor_paral"),
        (
            {"final_logit_softcapping": 30.0, "logit_scale": 1.0},
            1,
            "config.json: vLLM leaves final_logit_softcapping out of the logits of labels",
        ),
    ],
)
def test_other_scores_are_refused_by_name(tmp_path: Path, config: dict[str, Any], num_ranks: int, error: str) -> None:
    path = written(tmp_path, **config)
    with pytest.raises(ModelFileError, match=error):
        of("score", path, num_ranks)
    node = NodeSpec(name="n", engine="vllm", tensor_parallel=num_ranks)
    problem = load_problem(ModelSpec(name="m", source=str(path), task="score"), node, EngineOptions(), 1 << 30)
    assert error in problem
