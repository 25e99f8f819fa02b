"""Who may guess tokens is said in the configuration, and refused where nobody could check them."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.config import ClusterConfig
from shared.config.engines.speculation import SpeculationOptions

MODEL = {"name": "chat", "source": "/m", "speculation": {"method": "ngram"}}
NEEDS = "models.0.speculation: needs executor: cpu or reference at every node; {} differs; leave it out"


def problems(nodes: list[dict[str, Any]], **given: Any) -> str:
    with pytest.raises(ValueError, match="speculation") as caught:
        ClusterConfig.model_validate({"models": [MODEL | given], "nodes": nodes})
    return str(caught.value)


def test_it_is_off_by_default() -> None:
    config = ClusterConfig.model_validate({"models": [{"name": "chat", "source": "/m"}]})
    assert config.models[0].speculation is None


def test_nodes_of_processors_guess() -> None:
    config = ClusterConfig.model_validate({"models": [MODEL], "nodes": [{"name": "a"}, {"name": "b"}]})
    assert config.models[0].speculation == SpeculationOptions("ngram", 8)


@pytest.mark.parametrize(
    "node",
    [
        {"name": "b", "engine": "vllm"},
        {"name": "b", "executor": "cuda", "device": "cuda:0"},
        {"name": "b", "executor": "predicted", "device": "a100"},
    ],
)
def test_other_nodes_are_named(node: dict[str, Any]) -> None:
    assert NEEDS.format("b") in problems([{"name": "a"}, node])


def test_an_embedding_has_no_tokens_to_guess() -> None:
    text = "models.0.speculation: embeddings have no tokens to guess; leave it out"
    assert text in problems([{"name": "a"}], task="embed")


@pytest.mark.parametrize(
    "given",
    [{}, {"method": "eagle"}, {"method": "ngram", "max_draft_tokens": 0}, {"method": "ngram", "max_draft_tokens": 17}],
)
def test_methods_and_numbers_that_there_are_not(given: dict[str, Any]) -> None:
    problems([{"name": "a"}], speculation=given)
