"""What the KV manager is told of cached blocks, and when the engine is asked for it."""

from __future__ import annotations

from gpu_node.agent.decisions.actions import AgentAction, BlocksDue, SayBlocks, Tell
from gpu_node.agent.decisions.telling.block_reports import MAX_AT_A_TIME
from gpu_node.engine.process.protocol.protocol import AskBlocks, BlocksTold
from shared.messages.memory.blocks import BlockNews, TellBlocks
from shared.messages.memory.tiers import TierNews
from tests.unit.agent.events import EPOCH, make_agent

NEWS = [TierNews(1, [5])]


def told(*, is_new: bool = False, tiers: list[TierNews] | None = None, has_more: bool = False) -> BlocksTold:
    return BlocksTold("a", is_new, NEWS if tiers is None else tiers, has_more)


def said(number: int, *, is_new: bool = False) -> AgentAction:
    return SayBlocks(BlockNews(node="n0", epoch=EPOCH, number=number, model="a", is_new=is_new, tiers=NEWS))


def test_the_engine_is_asked_now_and_then_one_question_at_a_time() -> None:
    agent = make_agent("a")
    assert agent.handle(BlocksDue()) == [Tell(AskBlocks())]
    assert agent.handle(BlocksDue()) == []
    assert agent.handle(told(is_new=True)) == [said(1, is_new=True)]
    assert agent.handle(BlocksDue()) == [Tell(AskBlocks())]
    assert agent.handle(told()) == [said(2)]


def test_nothing_new_is_not_told() -> None:
    agent = make_agent("a")
    agent.handle(BlocksDue())
    assert agent.handle(told(tiers=[])) == []


def test_the_rest_is_asked_for_but_not_all_at_once() -> None:
    agent = make_agent("a")
    agent.handle(BlocksDue())
    for number in range(1, MAX_AT_A_TIME):
        assert agent.handle(told(has_more=True)) == [said(number), Tell(AskBlocks())]
    assert agent.handle(told(has_more=True)) == [said(MAX_AT_A_TIME)]


def test_all_is_told_again_when_the_kv_manager_has_missed_something() -> None:
    agent = make_agent("a")
    assert agent.handle(TellBlocks(node="n0", epoch="another")) == []
    assert agent.handle(TellBlocks(node="n0", epoch=EPOCH)) == [Tell(AskBlocks(is_again=True))]
    assert agent.handle(told(is_new=True)) == [said(1, is_new=True)]


def test_a_question_that_is_open_is_followed_by_the_one_for_all() -> None:
    agent = make_agent("a")
    agent.handle(BlocksDue())
    assert agent.handle(TellBlocks(node="n0", epoch=EPOCH)) == []
    assert agent.handle(told()) == [said(1)]
    assert agent.handle(BlocksDue()) == [Tell(AskBlocks(is_again=True))]
