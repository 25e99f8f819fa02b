"""Models that embed or score need a node that can."""

from __future__ import annotations

import pytest

from shared.config.config import ClusterConfig

MODELS = [{"name": "chat", "source": "/m"}, {"name": "texts", "source": "/m", "task": "embed"}]
VLLM = {"name": "a", "engine": "vllm"}


@pytest.mark.parametrize(("task", "answers"), [("embed", "embeddings"), ("score", "scores")])
def test_vllm_alone_cannot(task: str, answers: str) -> None:
    expected = f"models.1.task: '{task}' needs a node with engine: treadle; vLLM gives no {answers} here"
    with pytest.raises(ValueError, match=expected):
        ClusterConfig.model_validate({"models": [MODELS[0], MODELS[1] | {"task": task}], "nodes": [VLLM]})


def test_beside_another_node_it_is_left_out() -> None:
    config = ClusterConfig.model_validate({"models": MODELS, "nodes": [VLLM, {"name": "b"}]})
    assert [model.task for model in config.models] == ["generate", "embed"]
