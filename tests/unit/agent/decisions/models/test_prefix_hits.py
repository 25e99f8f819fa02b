"""What a node tells of prompts that are found in a cache."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.models.prefix_hits import MEMORY_TOKENS, PrefixHits
from gpu_node.engine.measures.counts import Counts, looked_up
from gpu_node.engine.process.protocol.protocol import StepReport
from shared.messages.nodes.step_cost import StepCost
from tests.unit.agent.events import loaded, make_agent, stats

COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0)


def step(agent: AgentCore, counts: Counts) -> None:
    agent.handle(StepReport([], replace(stats(cost=COST), counts=counts)))


def shares(agent: AgentCore) -> dict[str, float]:
    return {rate.model: round(rate.cached_share, 3) for rate in agent.heartbeat().facts.rates}


def test_the_share_is_of_the_tokens_and_of_late() -> None:
    hits = PrefixHits()
    hits.add(100, 25)
    assert hits.share == pytest.approx(0.25)
    hits.add(20_000, 20_000)
    old = math.exp(-20_000 / MEMORY_TOKENS)
    assert hits.share == pytest.approx((old * 25 + 20_000) / (old * 100 + 20_000))


def test_it_is_told_by_model_and_stays_when_the_model_goes() -> None:
    agent = make_agent("a")
    step(agent, Counts())
    assert shares(agent) == {"a": 0.0}
    first = looked_up(80, 32, is_prompt=True)
    step(agent, first)
    step(agent, first)
    agent.handle(loaded("b"))
    step(agent, first + looked_up(10, 1, is_prompt=True))
    assert shares(agent) == {"a": 0.4, "b": 0.1}


def test_what_a_preempted_request_finds_of_itself_does_not_count() -> None:
    agent = make_agent("a")
    step(agent, looked_up(80, 64, is_prompt=False))
    assert shares(agent) == {"a": 0.0}
