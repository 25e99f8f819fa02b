"""What a node makes of models that come to the configuration, or change there, while it runs."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.actions import Beat, Configured, Pull, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol import LoadModel, ModelFailed
from shared.config.engines.engine import ModelSpec
from tests.unit.agent.events import make_agent, queue

A, B = (ModelSpec(name=name, source=f"{name}.gguf") for name in "ab")
UNKNOWN = ModelFailed("b", "model 'b' is not in the configuration", is_unknown=True)


def broken(agent: AgentCore) -> list[str]:
    return agent.heartbeat().facts.broken_models


def told(agent: AgentCore, *models: ModelSpec) -> list[object]:
    return list(agent.handle(Configured(models)))


def test_a_model_that_is_not_configured_here_yet_is_loaded_once_it_is() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    assert Tell(LoadModel("b")) in agent.handle(queue(("g", "b", 1)))
    agent.handle(UNKNOWN)
    assert broken(agent) == ["b"]
    assert agent.handle(queue(("g", "b", 1), hopeless=["b"])) == [], "its requests wait: they are refused by no node"
    beat, load, *_ = told(agent, A, B)
    assert isinstance(beat, Beat)
    assert beat.heartbeat.facts.broken_models == []
    assert load == Tell(LoadModel("b", ()))


def test_a_name_that_stands_for_another_model_is_served_no_more_until_it_is_what_it_was() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A)
    told(agent, replace(A, source="other.gguf"), B)
    assert broken(agent) == ["a"]
    assert agent.models.broken["a"] == (
        "model 'a': its source changed; restart nodes and gateways, or give it another name"
    )
    assert agent.handle(queue(("g", "a", 1))) == [], "another node may have what it was"
    assert any(isinstance(action, Pull) for action in told(agent, A))
    assert broken(agent) == []


def test_what_changes_no_token_is_nothing_to_a_node() -> None:
    agent = make_agent("a")
    told(agent, A)
    told(agent, replace(A, aliases=("default",), max_model_len=128, reasoning="none"))
    assert broken(agent) == []


def test_a_model_that_has_gone_is_served_as_long_as_it_is_asked_for() -> None:
    agent = make_agent("a", num_admittable=4)
    told(agent, A, B)
    told(agent, B)
    assert broken(agent) == []
    assert any(isinstance(action, Pull) for action in agent.handle(queue(("g", "a", 1))))


def test_what_could_not_be_loaded_stays_so_whatever_comes_beside_it() -> None:
    agent = make_agent("a")
    told(agent, A, B)
    agent.handle(ModelFailed("b", "out of memory"))
    told(agent, A, B, ModelSpec(name="c", source="c.gguf"))
    assert broken(agent) == ["b"]
