"""What a node tells of the models that it has had in this epoch."""

from __future__ import annotations

import msgspec
import pytest

from gpu_node.agent.decisions.actions import AgentAction, Beat, Pull, Tell
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.engine.process.protocol.protocol import EngineReady, LoadModel, ModelFailed, StepReport
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost
from tests.unit.agent.events import OPTIONS, entry, loaded, make_agent, queue, stats, step, taken, tokens

COST_A = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0)
COST_B = StepCost(step_s=0.02, token_s=0.002, context_token_s=0.0)


def learn(agent: AgentCore, cost: StepCost) -> None:
    agent.handle(StepReport([], stats(cost=cost)))


def load_s_of(agent: AgentCore) -> dict[str, float]:
    return {rate.model: rate.load_s for rate in agent.heartbeat().facts.rates}


def test_a_node_is_of_the_kind_that_its_device_calls_itself() -> None:
    agent = AgentCore("n0", "n0.1", "cuda:0", OPTIONS)
    assert agent.heartbeat().facts.device == "cuda:0"
    told = agent.handle(EngineReady("NVIDIA H200", engine="vllm", lacks=["beam search"]))
    assert (agent.report.engine, agent.report.lacks) == ("vllm", ["beam search"])
    assert [action.heartbeat.facts.device for action in told if isinstance(action, Beat)] == ["NVIDIA H200"]


def test_a_model_whose_steps_were_not_measured_has_no_rate() -> None:
    assert make_agent("a").heartbeat().facts.rates == []


def test_a_rate_tells_what_the_device_does_with_the_model_and_how_much_kv_fits() -> None:
    agent = make_agent("a")
    learn(agent, COST_A)
    assert agent.heartbeat().facts.rates == [ModelRate("a", COST_A, kv_tokens=400, kv_token_bytes=16, load_s=0.0)]


def test_a_rate_tells_how_keys_and_values_of_its_model_lie_here() -> None:
    agent = make_agent()
    for model in "ab":
        agent.handle(loaded(model, kv_format=f"{model}'s"))
        learn(agent, COST_A)
    assert [rate.kv_format for rate in agent.heartbeat().facts.rates] == ["a's", "b's"]


def test_a_rate_tells_what_guesses_bring_and_keeps_it_when_the_model_goes() -> None:
    agent = make_agent("a")
    told = []
    for decode in (None, DecodeYield(3.0, 2.0), DecodeYield(2.0, 1.5), None):
        agent.handle(StepReport([], stats(cost=COST_A, decode=decode)))
        told += [rate.decode for rate in agent.heartbeat().facts.rates]
    assert told == [DecodeYield(1.0, 1.0), DecodeYield(3.0, 2.0), DecodeYield(2.0, 1.5), DecodeYield(2.0, 1.5)]
    agent.handle(loaded("b", load_s=2.5, tiers={"a": "host", "b": "device"}))
    learn(agent, COST_B)
    assert [rate.decode for rate in agent.heartbeat().facts.rates] == [DecodeYield(2.0, 1.5), DecodeYield()]


def test_a_rate_tells_the_rows_of_its_models_steps_where_they_are_its_own() -> None:
    agent = make_agent()
    for model, step_tokens in (("a", 512), ("b", 0)):
        agent.handle(msgspec.structs.replace(loaded(model), step_tokens=step_tokens))
        learn(agent, COST_A)
    facts = agent.heartbeat().facts
    assert (facts.step_tokens, [rate.step_tokens for rate in facts.rates]) == (OPTIONS.step_tokens, [512, 0])


def test_what_a_model_borrows_is_room_for_it_as_long_as_it_has_it() -> None:
    agent = make_agent("a")
    for num_blocks, kv_tokens in ((0, 400), (25, 500), (0, 400)):
        agent.handle(StepReport([], stats(cost=COST_A, num_remote_blocks=num_blocks)))
        assert [rate.kv_tokens for rate in agent.heartbeat().facts.rates] == [kv_tokens]
    agent.handle(StepReport([], stats(cost=COST_A, num_remote_blocks=25)))
    agent.handle(loaded("b", load_s=2.5, tiers={"a": "host", "b": "device"}))
    assert [rate.kv_tokens for rate in agent.heartbeat().facts.rates] == [400], "a link ends with its model"


def test_context_costs_what_it_does_where_it_lies() -> None:
    """100 blocks here and 25 at a receiver: a fifth of 10 µs, and four of 5 + 2; attending to it is done there, too."""
    agent = make_agent("a")
    cost = StepCost(0.01, 0.001, context_token_s=5e-6, attended_token_s=2e-6, remote_token_s=10e-6)
    for num_blocks, expected in ((0, (5e-6, 2e-6)), (25, (0.8 * 5e-6 + 0.2 * 10e-6, 0.8 * 2e-6))):
        agent.handle(StepReport([], stats(cost=cost, num_remote_blocks=num_blocks)))
        (rate,) = agent.heartbeat().facts.rates
        assert (rate.cost.context_token_s, rate.cost.attended_token_s) == pytest.approx(expected)
        assert (rate.cost.step_s, rate.cost.token_s, rate.cost.remote_token_s) == (0.01, 0.001, 0.0)


def test_what_was_learnt_of_a_model_stays_when_it_goes() -> None:
    agent = make_agent("a")
    learn(agent, COST_A)
    agent.handle(loaded("b", load_s=2.5, tiers={"a": "host", "b": "device"}))
    learn(agent, COST_B)
    rates = agent.heartbeat().facts.rates
    assert [(rate.model, rate.cost) for rate in rates] == [("a", COST_A), ("b", COST_B)]


def test_a_load_takes_as_long_as_the_last_one_from_where_the_weights_are() -> None:
    agent = make_agent("a")
    learn(agent, COST_A)
    agent.handle(loaded("b", load_s=2.5, tiers={"a": "host", "b": "device"}))
    learn(agent, COST_B)
    assert load_s_of(agent) == {"a": 1.5, "b": 0.0}, "a has come from disk only: it will not take longer than that"
    agent.handle(loaded("a", load_s=0.1, source="host", tiers={"a": "device"}))
    assert load_s_of(agent) == {"a": 0.0, "b": 2.5}
    agent.handle(loaded("b", load_s=2.0, tiers={"a": "host", "b": "device"}))
    assert load_s_of(agent) == {"a": 0.1, "b": 0.0}
    agent.handle(loaded("c", load_s=1.0, tiers={"c": "device"}))
    assert load_s_of(agent) == {"a": 1.5, "b": 2.0}


def test_models_that_share_the_device_take_no_time() -> None:
    agent = make_agent("a")
    learn(agent, COST_A)
    agent.handle(loaded("b", tiers={"a": "device", "b": "device"}))
    assert load_s_of(agent) == {"a": 0.0}


# --- what is being loaded -------------------------------------------------------------------------------------------


def test_a_load_that_begins_is_told_at_once_beside_the_model_that_is_still_there() -> None:
    agent = make_agent("a")
    assert agent.heartbeat().loading == ""
    tell, beat = agent.handle(queue(("g0", "b", 1)))
    assert tell == Tell(LoadModel("b"))
    assert isinstance(beat, Beat)
    assert (beat.heartbeat.model, beat.heartbeat.loading) == ("a", "b")
    assert agent.heartbeat() == beat.heartbeat, "so it is told as long as it loads"


def test_a_model_that_is_there_or_cannot_be_is_not_being_loaded() -> None:
    agent = make_agent("a")
    agent.handle(queue(("g0", "b", 1)))
    agent.handle(loaded("b"))
    assert (agent.heartbeat().model, agent.heartbeat().loading) == ("b", "")
    agent.handle(queue(("g1", "c", 1)))
    assert (agent.heartbeat().model, agent.heartbeat().loading) == ("b", "c")
    agent.handle(ModelFailed("c", "no such file"))
    assert (agent.heartbeat().model, agent.heartbeat().loading) == ("b", "")


def test_the_way_back_is_known_while_another_model_makes_it_leave() -> None:
    agent = make_agent("a")
    learn(agent, COST_A)
    agent.handle(loaded("b", load_s=2.5, tiers={"b": "device"}))
    learn(agent, COST_B)
    agent.handle(loaded("a", load_s=1.5, tiers={"a": "device"}))
    assert load_s_of(agent) == {"a": 0.0, "b": 2.5}
    agent.handle(queue(("g0", "b", 1)))
    assert load_s_of(agent) == {"a": 1.5, "b": 2.5}  # a: back again, once b is there


def test_a_model_whose_weights_are_on_the_device_is_not_fetched() -> None:
    agent = make_agent("a")
    agent.handle(loaded("b", load_s=2.5, tiers={"a": "device", "b": "device"}))
    assert agent.handle(queue(("g0", "a", 1))) == [Tell(LoadModel("a"))]
    assert (agent.models.loading, agent.heartbeat().loading) == ("a", "")


# --- a model for those who come -------------------------------------------------------------------------------------


def test_a_model_is_loaded_for_those_who_come_once_nothing_is_left() -> None:
    agent = make_agent("a", num_admittable=2)
    agent.handle(queue(("g0", "a", 1), awaits="b"))
    agent.handle(taken("g0", 2, entry("r0")))
    assert not loads(agent.handle(queue(awaits="b"))), "r0 runs"
    assert loads(agent.handle(step(tokens("r0", 5, finish_reason="stop"), num_received=1))) == ["b"]
    assert not loads(agent.handle(queue(awaits="b"))), "it is on the way"


def test_no_model_is_loaded_that_is_there_or_cannot_be() -> None:
    agent = make_agent("a")
    assert not loads(agent.handle(queue(awaits="a")))
    agent.handle(ModelFailed("b", "no such file"))
    assert not loads(agent.handle(queue(awaits="b")))


def test_who_waits_is_served_before_a_model_is_loaded_for_those_who_come() -> None:
    agent = make_agent("a", num_admittable=2)
    assert agent.handle(queue(("g0", "a", 1), awaits="b")) == [Pull("g0", 2)]


def loads(actions: list[AgentAction]) -> list[str]:
    commands = [action.command for action in actions if isinstance(action, Tell)]
    return [command.model for command in commands if isinstance(command, LoadModel)]
