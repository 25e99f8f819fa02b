"""What the configuration says of models that score."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.config import ClusterConfig
from shared.config.engines.scoring import DEFAULT_SCORE, ScoreOptions
from shared.files.classifier import num_labels_of


def config(**model: Any) -> ClusterConfig:
    return ClusterConfig.model_validate({"models": [{"name": "judge", "source": "/m", "task": "score"} | model]})


def test_all_has_a_default() -> None:
    assert config().models[0].score == DEFAULT_SCORE == ScoreOptions(None, None, ("no", "yes"))


def test_what_can_be_said() -> None:
    found = config(score={"prompt": "{query} {document}", "labels": ["0", "1"]}).models[0].score
    assert (found.prompt, found.labels) == ("{query} {document}", ("0", "1"))


@pytest.mark.parametrize(
    ("score", "problem"),
    [
        ({"prompt": "{query}"}, "{document} is in it 0 times; it has to be there once"),
        ({"prompt": "{document}"}, "{query} is in it 0 times; it has to be there once"),
        ({"prompt": "{query}{query}{document}"}, "{query} is in it 2 times; it has to be there once"),
        (
            {"prompt": "{instruction}{query}{document}{instruction}"},
            "{instruction} is in it 2 times; it may be there once",
        ),
        ({"labels": ["no", "no"]}, "labels: ['no', 'no'] are not the texts of two different tokens"),
        ({"labels": ["no", ""]}, "labels: ['no', ''] are not the texts of two different tokens"),
        ({"labels": ["no"]}, "labels"),
        ({"wording": "x"}, "wording"),
    ],
)
def test_what_cannot(score: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (its text is looked at)
        config(score=score)
    assert problem in str(error.value)


def test_only_a_model_that_scores_says_how() -> None:
    problem = "models.0.score: it says how a model is asked for scores; set task: score, or leave it out"
    with pytest.raises(ValueError, match=problem):
        config(task="embed", score={"labels": ["0", "1"]})


@pytest.mark.parametrize(
    ("values", "num_labels"),
    [
        ({}, None),
        ({"architectures": ["LlamaForCausalLM"], "num_labels": 1}, None),
        ({"architectures": ["LlamaForSequenceClassification"]}, 2),
        ({"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}, 1),
        ({"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "LABEL_0"}}, 1),
    ],
)
def test_a_classifier_by_its_files(values: dict[str, Any], num_labels: int | None) -> None:
    assert num_labels_of(values) == num_labels
