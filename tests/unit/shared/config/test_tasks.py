"""Models that embed need a node that can."""

from __future__ import annotations

import pytest

from shared.config.config import ClusterConfig

MODELS = [{"name": "chat", "source": "/m"}, {"name": "texts", "source": "/m", "task": "embed"}]
VLLM = {"name": "a", "engine": "vllm"}


def test_vllm_alone_cannot() -> None:
    expected = "models.1.task: 'embed' needs a node with engine: treadle; vLLM gives no embeddings here"
    with pytest.raises(ValueError, match=expected):
        ClusterConfig.model_validate({"models": MODELS, "nodes": [VLLM]})


def test_beside_another_node_it_is_left_out() -> None:
    config = ClusterConfig.model_validate({"models": MODELS, "nodes": [VLLM, {"name": "b"}]})
    assert [model.task for model in config.models] == ["generate", "embed"]
