"""What a configuration says of a classifier's labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.files.classifier import ClassLabels, read_class_labels
from shared.files.model_file import ModelFileError

ARCHITECTURES = {"architectures": ["BertForSequenceClassification"]}


def written(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(ARCHITECTURES | config))
    return folder


@pytest.mark.parametrize(
    ("config", "labels"),
    [
        ({"id2label": {"0": "no", "1": "yes"}}, ClassLabels(("no", "yes"), is_exclusive=True)),
        ({"id2label": {"1": "b", "0": "a"}}, ClassLabels(("a", "b"), is_exclusive=True)),
        ({"id2label": {"0": "toxic"}}, ClassLabels(("toxic",), is_exclusive=False)),
        ({"num_labels": 3}, ClassLabels(("LABEL_0", "LABEL_1", "LABEL_2"), is_exclusive=True)),
        ({}, ClassLabels(("LABEL_0", "LABEL_1"), is_exclusive=True)),
        ({"problem_type": "multi_label_classification"}, ClassLabels(("LABEL_0", "LABEL_1"), is_exclusive=False)),
        ({"problem_type": "single_label_classification"}, ClassLabels(("LABEL_0", "LABEL_1"), is_exclusive=True)),
    ],
)
def test_labels(tmp_path: Path, config: dict[str, Any], labels: ClassLabels) -> None:
    assert read_class_labels(written(tmp_path, **config)) == labels


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"architectures": ["BertModel"]}, "it is no classifier .* so it has no labels"),
        ({"problem_type": "regression"}, "problem_type is 'regression'; task: classify takes single_label_classificat"),
        ({"problem_type": ["x"]}, r"problem_type is \['x'\]; task"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label does not name the labels 0 to 1, each by a text"),
        ({"id2label": {"0": 5}}, "id2label does not name the labels 0 to 0"),
        ({"id2label": {}}, "it has 0 labels; supported are 1 to 65536"),
        ({"num_labels": 1 << 40}, "it has 1099511627776 labels"),
    ],
)
def test_what_does_not_say_them_is_refused(tmp_path: Path, config: dict[str, Any], error: str) -> None:
    with pytest.raises(ModelFileError, match=f"config.json: {error}"):
        read_class_labels(written(tmp_path, **config))


def test_nor_does_a_gguf_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="a GGUF file does not say whether its labels exclude each other; set"):
        read_class_labels(tmp_path / "m.gguf")
