"""The head of a model that scores: a few rows, of which a document's logits are made.

A language model answers by a token, as Qwen3-Reranker does: the rows of the head for two tokens, no and then yes. A
classifier (`transformers`' ``…ForSequenceClassification``) has a head of its own with one row for its one label. GGUF
files of re-rankers hold the rows for two labels as a tensor of their own (``cls.output``, which llama.cpp makes).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpu_node.graph.weight import Weight, joined
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.fields import Fields
from gpu_node.models.hf.hf_config import CONFIG_FILE, read_json_values
from shared.config.engines.scoring import ScoreOptions
from shared.files.classifier import CLASSIFIER_TENSOR, POOLER_TENSOR, num_labels_of, read_class_labels
from shared.files.model_file import ModelFileError
from shared.vocabulary.token_texts import read_token_texts

SCORE: Final = "score"
"""Canonical name of a classifier's head."""


def score_head(checkpoint: Checkpoint, options: ScoreOptions) -> Weight:
    """float [labels, hidden size]: two rows (no, yes), or one. `ModelFileError` where the files have no such head."""
    if checkpoint.gguf is not None:
        head = checkpoint.gguf.tensors.get(CLASSIFIER_TENSOR)
        if head is None:
            return _rows_for_labels(checkpoint, options)
        fields = Fields(checkpoint.gguf.metadata.get, checkpoint.path)
        return _gguf_classifier(fields, head.shape, checkpoint.config.hidden_size, options)
    path = checkpoint.path / CONFIG_FILE
    num_labels = num_labels_of(read_json_values(path))
    if num_labels is None:
        return _rows_for_labels(checkpoint, options)
    _require_one(num_labels, path)
    return Weight(SCORE, (1, checkpoint.config.hidden_size))


def label_head(checkpoint: Checkpoint) -> Weight:
    """float [labels, hidden size]: of a classifier, all of it. `ModelFileError` where the files have no such head."""
    return Weight(SCORE, (len(read_class_labels(checkpoint.path).names), checkpoint.config.hidden_size))


def check_labels(checkpoint: Checkpoint) -> None:
    """`ModelFileError` where an encoder's files hold no classifier with one label."""
    if checkpoint.gguf is not None:
        _check_gguf_labels({name: one.shape for name, one in checkpoint.gguf.tensors.items()}, checkpoint.path)
        return
    path = checkpoint.path / CONFIG_FILE
    num_labels = num_labels_of(read_json_values(path))
    if num_labels is None:
        raise ModelFileError(
            f"{path}: it is no classifier (architectures names no …ForSequenceClassification), so it has no score to "
            "give; set task: embed"
        )
    _require_one(num_labels, path)


def _check_gguf_labels(shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Its head is the pooler and a matrix of labels, of which quantising tools leave out a dimension of one row."""
    head = shapes.get(CLASSIFIER_TENSOR)
    if head is None:
        raise ModelFileError(
            f"{path}: it has no tensor {CLASSIFIER_TENSOR}, so it has no score to give; set task: embed"
        )
    _require_one(head[0] if len(head) > 1 else 1, path)
    if POOLER_TENSOR not in shapes:
        raise ModelFileError(
            f"{path}: it has no tensor {POOLER_TENSOR}, the layer before its labels, which llama.cpp's converter "
            "leaves out of a BERT; serve the directory in Hugging Face layout, or a re-ranker of RoBERTa's kin"
        )


def _require_one(num_labels: int, path: Path) -> None:
    if num_labels != 1:
        raise ModelFileError(
            f"{path}: it is a classifier with {num_labels} labels; task: score takes one of one label, "
            "task: classify any"
        )


def _gguf_classifier(fields: Fields, shape: tuple[int, ...], hidden_size: int, options: ScoreOptions) -> Weight:
    if len(shape) != 2 or shape[1] != hidden_size or shape[0] not in (1, 2):
        raise fields.error(
            f"tensor {CLASSIFIER_TENSOR} has shape {shape}; task: score takes (1, {hidden_size}), or "
            f"(2, {hidden_size}) with the labels {list(options.labels)}"
        )
    if shape[0] == 1:
        return Weight(SCORE, (1, hidden_size))
    labels = fields.texts(f"{fields.text('general.architecture', default='')}.classifier.output_labels") or []
    if sorted(labels) != sorted(options.labels):
        raise fields.error(
            f"its classifier answers by {reprlib.repr(labels)} (classifier.output_labels), and not by "
            f"{list(options.labels)}; set score.labels to two of them, no first"
        )
    return _rows(SCORE, (2, hidden_size), [labels.index(label) for label in options.labels])


def _rows_for_labels(checkpoint: Checkpoint, options: ScoreOptions) -> Weight:
    config = checkpoint.config
    texts = read_token_texts(checkpoint.path).texts[: config.vocab_size]
    rows = [_token_of(label, texts, checkpoint) for label in options.labels]
    head = "embedding" if config.tied_embedding else "lm_head"
    return _rows(head, (config.vocab_size, config.hidden_size), rows)


def _token_of(label: str, texts: Sequence[bytes], checkpoint: Checkpoint) -> int:
    """The first of the tokens that stand for this text."""
    try:
        return texts.index(label.encode())
    except ValueError:
        raise ModelFileError(
            f"{checkpoint.path}: no token stands for {label!r} alone; set score.labels to the texts of the two tokens "
            "by which the model answers no and yes"
        ) from None


def _rows(tensor: str, shape: tuple[int, int], rows: Sequence[int]) -> Weight:
    """These rows of a stored tensor, in this order."""
    whole = Weight(tensor, shape)
    return joined(f"{tensor}[{','.join(map(str, rows))}]", [whole.cut(0, row, row + 1) for row in rows])
