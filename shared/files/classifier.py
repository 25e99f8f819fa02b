"""Whether a model is a classifier of whole texts, by its files, and what its labels are."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.files.model_file import ModelFileError

CLASSIFIER_TENSOR = "cls.output.weight"
"""A re-ranker's head in a GGUF file: [labels, hidden size]."""
POOLER_TENSOR = "cls.weight"
"""The layer before that of an encoder: [hidden size, hidden size]."""
MAX_LABELS: Final = 65_536
"""Of a head; the largest have some thousands."""
_CLASSIFIER = "ForSequenceClassification"
_DEFAULT_LABELS = 2  # of `transformers`, which leaves them out of the file
_EXCLUSIVE: Final = {"single_label_classification": True, "multi_label_classification": False}
"""``problem_type``, as `transformers` writes it: whether one of the labels alone is right."""


@dataclass(frozen=True, slots=True)
class ClassLabels:
    """The labels of a classifier."""

    names: tuple[str, ...]
    """In the order of its logits."""
    is_exclusive: bool
    """One of them is right, so that they are likely to 1 in all; else each for itself."""


def num_labels_of(config: Mapping[str, object]) -> int | None:
    """How many labels its head has, by the ``config.json`` of a directory; None where it is no classifier."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not any(str(one).endswith(_CLASSIFIER) for one in architectures):
        return None
    labels, number = config.get("id2label"), config.get("num_labels")
    if isinstance(labels, dict):
        return len(labels)
    return number if isinstance(number, int) else _DEFAULT_LABELS


def read_class_labels(path: Path) -> ClassLabels:
    """The labels of the model at ``path``; `ModelFileError` where it has none, or they cannot be told."""
    if not path.is_dir():
        raise ModelFileError(
            f"{path}: a GGUF file does not say whether its labels exclude each other; set source to a directory in "
            "Hugging Face layout"
        )
    file = path / "config.json"
    try:
        config = json.loads(file.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{file} cannot be read as JSON: {error}") from error
    return class_labels(config if isinstance(config, dict) else {}, file)


def class_labels(config: Mapping[str, object], file: Path) -> ClassLabels:
    """Those of a ``config.json``. What a file leaves out is as `transformers` has it: names by number, and one label of
    several is right."""
    num_labels = num_labels_of(config)
    if num_labels is None:
        raise ModelFileError(
            f"{file}: it is no classifier (architectures names no …ForSequenceClassification), so it has no labels"
        )
    if not 0 < num_labels <= MAX_LABELS:
        raise ModelFileError(f"{file}: it has {num_labels} labels; supported are 1 to {MAX_LABELS}")
    problem_type = config.get("problem_type")
    if problem_type is not None and str(problem_type) not in _EXCLUSIVE:
        raise ModelFileError(
            f"{file}: problem_type is {reprlib.repr(problem_type)}; task: classify takes {' or '.join(_EXCLUSIVE)}"
        )
    is_exclusive = num_labels > 1 if problem_type is None else _EXCLUSIVE[str(problem_type)]
    names = config.get("id2label")
    if not isinstance(names, dict):
        return ClassLabels(tuple(f"LABEL_{number}" for number in range(num_labels)), is_exclusive)
    found = [names.get(str(number)) for number in range(num_labels)]
    texts = tuple(name for name in found if isinstance(name, str))
    if len(texts) < num_labels:
        raise ModelFileError(f"{file}: id2label does not name the labels 0 to {num_labels - 1}, each by a text")
    return ClassLabels(texts, is_exclusive)
