"""What is told of cached blocks: changes in bounded parts, and all of it anew where they were too many."""

from __future__ import annotations

from gpu_node.engine.memory.block_log import BlockChanges, BlockLog
from gpu_node.engine.memory.block_manager import BlockManager
from shared.messages.memory.tiers import Tier, TierNews
from shared.messages.prefixes.prefixes import ROOT, chained_digest, name_of

ONE, TWO, THREE = (chained_digest(ROOT, (number,)) for number in range(3))


def names(*digests: bytes) -> list[int]:
    return [name_of(digest) for digest in digests]


def test_first_all_that_is_found_is_told_in_parts() -> None:
    log = BlockLog()
    found = [(Tier.DEVICE, ONE), (Tier.DEVICE, TWO), (Tier.SSD, ONE)]
    first = log.take("m", found, 2)
    assert first == BlockChanges("m", True, (TierNews(1, names(ONE, TWO)),), has_more=True)
    assert log.take("m", [], 2) == BlockChanges("m", False, (TierNews(4, names(ONE)),), has_more=False)


def test_then_what_has_changed_since_the_last_of_each_block() -> None:
    log = BlockLog()
    log.take("m", [], 9)
    device, host = log.of(Tier.DEVICE), log.of(Tier.HOST)
    device(ONE, is_there=True)
    host(ONE, is_there=True)
    device(TWO, is_there=True)
    device(ONE, is_there=False)
    assert log.has_more
    tiers = (TierNews(1, names(TWO), names(ONE)), TierNews(2, names(ONE)))
    assert log.take("m", [], 9) == BlockChanges("m", False, tiers, has_more=False)
    assert log.take("m", [], 9) == BlockChanges("m")


def test_what_goes_while_all_is_told_goes_behind_it() -> None:
    log = BlockLog()
    log.take("m", [(Tier.DEVICE, ONE), (Tier.DEVICE, TWO)], 1)
    log.of(Tier.DEVICE)(TWO, is_there=False)
    assert log.take("m", [], 1).tiers == (TierNews(1, names(TWO)),)
    assert log.take("m", [], 1).tiers == (TierNews(1, [], names(TWO)),)


def test_too_many_changes_are_dropped_and_all_is_told_anew() -> None:
    log = BlockLog(max_changes=2)
    log.take("m", [], 9)
    for digest in (ONE, TWO, THREE):
        log.of(Tier.DEVICE)(digest, is_there=True)
    assert log.num_dropped == 3
    again = log.take("m", [(Tier.DEVICE, THREE)], 9)
    assert again == BlockChanges("m", True, (TierNews(1, names(THREE)),), has_more=False)


def test_a_block_manager_tells_what_can_be_found_on_its_device() -> None:
    """Two full blocks of two are computed; another sequence needs the room of both."""
    blocks = BlockManager.alone(3, block_size=2, model="m")
    blocks.log.take("m", blocks.found(), 9)
    first = chained_digest(ROOT, (1, 2))
    second = chained_digest(first, (3, 4))
    compute(blocks, 0, [1, 2, 3, 4, 5])
    assert blocks.log.take("m", [], 9).tiers == (TierNews(1, names(first, second)),)
    blocks.free(0)
    compute(blocks, 1, [9, 9, 9, 9, 9])
    other = chained_digest(ROOT, (9, 9))
    news = blocks.log.take("m", [], 9).tiers
    assert news == (TierNews(1, names(other, chained_digest(other, (9, 9))), names(second, first)),)
    assert sorted(name_of(digest) for _, digest in blocks.found()) == sorted(news[0].came)


def compute(blocks: BlockManager, sequence_id: int, token_ids: list[int]) -> None:
    blocks.open(sequence_id, token_ids)
    blocks.append(sequence_id, 0, len(token_ids))
    blocks.publish(sequence_id, token_ids, len(token_ids))
