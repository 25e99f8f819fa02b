"""What models are served for, in the configuration."""

from __future__ import annotations

import pytest

from shared.config.config import ClusterConfig

MODELS = [{"name": "chat", "source": "/m"}, {"name": "texts", "source": "/m"}]


@pytest.mark.parametrize("task", ["embed", "score"])
@pytest.mark.parametrize("engine", ["vllm", "treadle"])
def test_either_engine_embeds_and_scores(task: str, engine: str) -> None:
    models = [MODELS[0], MODELS[1] | {"task": task}]
    config = ClusterConfig.model_validate({"models": models, "nodes": [{"name": "a", "engine": engine}]})
    assert [model.task for model in config.models] == ["generate", task]


@pytest.mark.parametrize("task", ["generate", "embed"])
def test_how_a_model_is_asked_for_scores_belongs_to_one_that_scores(task: str) -> None:
    models = [MODELS[0], MODELS[1] | {"task": task, "score": {"labels": ["a", "b"]}}]
    with pytest.raises(ValueError, match=r"models\.1\.score: it says how a model is asked for scores; set task: score"):
        ClusterConfig.model_validate({"models": models})


@pytest.mark.parametrize("task", ["embed", "score"])
def test_how_tokens_are_drawn_belongs_to_a_model_that_draws(task: str) -> None:
    models = [MODELS[0], MODELS[1] | {"task": task, "sampling": {"top_k": 20}}]
    with pytest.raises(ValueError, match=rf"models\.1\.sampling: nothing is drawn with task: {task}; leave it out"):
        ClusterConfig.model_validate({"models": models})
