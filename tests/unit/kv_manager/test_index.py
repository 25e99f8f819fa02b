"""Which node has which blocks: as nodes tell it, and begun anew wherever something was missed."""

from __future__ import annotations

from services.kv_manager.core import KvManagerCore
from services.kv_manager.index import ASK_AGAIN_S, BlockIndex
from shared.bus import streams
from shared.messages.memory.blocks import BlockNews, Locate, Located, TellBlocks, WarmNode
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.nodes.nodes import NodeGone
from shared.messages.prefixes.partitions import owner_of, partition_of
from shared.messages.prefixes.prefixes import prompt_prefix
from shared.service.core import Effect, Send
from tests.unit.kv_manager.test_core import beat


def news(
    number: int, *tiers: TierNews, node: str = "n0", epoch: str = "1", model: str = "m", is_new: bool = False
) -> BlockNews:
    return BlockNews(node=node, epoch=epoch, number=number, model=model, is_new=is_new, tiers=list(tiers))


def came(tier: Tier, *names: int) -> TierNews:
    return TierNews(int(tier), came=list(names))


def gone(tier: Tier, *names: int) -> TierNews:
    return TierNews(int(tier), gone=list(names))


def told(*all_news: BlockNews) -> BlockIndex:
    index = BlockIndex()
    for one in all_news:
        index.hear(one)
    return index


def test_a_prompt_is_found_as_far_as_each_node_has_it_without_a_gap() -> None:
    index = told(
        news(1, came(Tier.DEVICE, 1, 2, 3), came(Tier.HOST, 1, 2, 3, 4), came(Tier.SSD, 5, 7), is_new=True),
        news(1, came(Tier.DEVICE, 1), node="n1", is_new=True),
        news(1, came(Tier.DEVICE, 2), node="n2", is_new=True),
        news(1, came(Tier.DEVICE, 1), node="n3", model="other", is_new=True),
    )
    assert index.find("m", [1, 2, 3, 4, 5, 6, 7]) == [WarmNode("n0", 3, 1, 1), WarmNode("n1", 1)]
    assert index.num_blocks == 9


def test_a_prompt_is_found_by_its_owner_alone() -> None:
    """Two nodes have the same tokens of two partitions; a third one has them of the one that all share."""
    tokens = list(range(49))
    owners = {"n0": owner_of("", partition_of("", "a")), "n1": owner_of("", partition_of("acme", "")), "n2": ""}
    prefixes = {node: prompt_prefix(tokens, 16, owner) for node, owner in owners.items()}
    names = {node: prefix.names for node, prefix in prefixes.items() if prefix is not None}
    index = told(*(news(1, came(Tier.DEVICE, *names[node]), node=node, is_new=True) for node in owners))
    assert {node: index.find("m", names[node]) for node in owners} == {node: [WarmNode(node, 3)] for node in owners}


def test_what_has_gone_is_not_found() -> None:
    index = told(news(1, came(Tier.DEVICE, 1, 2), came(Tier.HOST, 1), is_new=True), news(2, gone(Tier.DEVICE, 1, 2)))
    assert index.find("m", [1, 2]) == [WarmNode("n0", 0, 1)]


def test_what_is_told_anew_is_all() -> None:
    index = told(news(1, came(Tier.DEVICE, 1), is_new=True), news(2, came(Tier.DEVICE, 2), is_new=True))
    assert (index.find("m", [1]), index.find("m", [2])) == ([], [WarmNode("n0", 1)])


def test_after_a_missed_number_a_node_has_nothing_until_it_tells_all() -> None:
    index = told(news(1, came(Tier.DEVICE, 1), is_new=True), news(3, came(Tier.DEVICE, 3)))
    assert (index.find("m", [1]), index.find("m", [3]), index.num_missed) == ([], [], 1)
    assert index.must_ask("n0", "1", 10.0)
    assert not index.must_ask("n0", "1", 10.0 + ASK_AGAIN_S - 0.1)
    assert index.must_ask("n0", "1", 10.0 + ASK_AGAIN_S)
    index.hear(news(4, came(Tier.DEVICE, 4)))
    assert index.find("m", [4]) == []
    index.hear(news(5, came(Tier.DEVICE, 1, 3), is_new=True))
    assert index.find("m", [1, 3]) == [WarmNode("n0", 2)]
    assert not index.must_ask("n0", "1", 100.0)


def test_another_epoch_has_nothing_of_the_one_before() -> None:
    index = told(news(1, came(Tier.DEVICE, 1), is_new=True), news(1, epoch="2", model="", is_new=True))
    assert index.find("m", [1]) == []
    assert not index.must_ask("n0", "2", 0.0)


# --- the core around it -----------------------------------------------------------------------------------------------


def ask(epoch: str = "1") -> Effect:
    return Send(streams.node_inbox("n0"), TellBlocks(node="n0", epoch=epoch), max_entries=streams.MAX_NODE_INBOX)


def test_the_queue_manager_is_answered_whether_or_not_anything_is_known() -> None:
    core = KvManagerCore(has_index=True)
    question = Locate(request_id="r", attempt=2, model="m", names=[1, 2])
    assert core.handle(question, 0.0) == [Send(streams.QUEUE, Located(request_id="r", attempt=2))]
    core.handle(beat(), 1.0)
    core.handle(news(1, came(Tier.HOST, 1), is_new=True), 1.0)
    answer = Located(request_id="r", attempt=2, nodes=[WarmNode("n0", 0, 1, 0)])
    assert core.handle(question, 2.0) == [Send(streams.QUEUE, answer)]
    core.handle(NodeGone(node="n0", epoch="1"), 3.0)
    assert core.handle(question, 4.0) == [Send(streams.QUEUE, Located(request_id="r", attempt=2))]


def test_a_node_that_has_told_all_is_not_asked() -> None:
    core = KvManagerCore(has_index=True)
    assert core.handle(news(1, model="", is_new=True), 0.0) == []
    assert core.handle(beat(), 1.0) == []


def test_a_restored_core_asks_each_node_that_it_hears_of() -> None:
    core = KvManagerCore(has_index=True)
    core.handle(beat(), 0.0)
    core.handle(news(1, came(Tier.HOST, 1), is_new=True), 0.0)
    small = len(core.snapshot())
    core.handle(news(2, came(Tier.HOST, *range(2, 1000))), 0.0)
    assert len(core.snapshot()) == small, "what lies where is no part of a snapshot"
    restored = KvManagerCore(has_index=True)
    restored.restore(core.snapshot())
    assert restored.handle(beat(), 1.0) == [ask()]
    assert restored.handle(beat(), 2.0) == []
    assert restored.handle(news(3, came(Tier.HOST, 5)), 2.0) == [ask()], "the number before was missed"
    assert restored.handle(news(4, came(Tier.HOST, 1, 5), is_new=True), 3.0) == []
    assert restored.index.find("m", [1, 5]) == [WarmNode("n0", 0, 2, 0)]


def test_without_an_index_nobody_is_asked() -> None:
    assert KvManagerCore().handle(beat(), 0.0) == []
