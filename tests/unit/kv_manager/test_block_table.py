"""A table of blocks against a plain dictionary."""

from __future__ import annotations

import random

import pytest

from services.kv_manager.block_table import NUM_PARTS, BlockTable
from shared.messages.memory.tiers import Tier


def test_a_block_is_in_each_tier_that_it_has_come_to() -> None:
    table = BlockTable()
    table.add(7, Tier.DEVICE)
    table.add(7, Tier.SSD)
    assert (table.tiers(7), table.tiers(8), len(table)) == (5, 0, 1)
    table.discard(7, Tier.DEVICE)
    table.discard(7, Tier.HOST)  # it was not there
    assert (table.tiers(7), len(table)) == (4, 1)
    table.discard(7, Tier.SSD)
    table.discard(8, Tier.SSD)
    assert (table.tiers(7), len(table)) == (0, 0)


def test_what_stood_behind_one_that_goes_is_still_found() -> None:
    """Four names of one part that all belong in its first place, the last one's neighbour in the second."""
    table = BlockTable()
    size = 8 * NUM_PARTS
    names = [size, 2 * size, 3 * size, NUM_PARTS + size]
    for name in names:
        table.add(name, Tier.HOST)
    table.discard(names[0], Tier.HOST)
    assert [table.tiers(name) for name in names] == [0, 2, 2, 2]
    table.discard(names[1], Tier.HOST)
    assert [table.tiers(name) for name in names] == [0, 0, 2, 2]


@pytest.mark.parametrize("seed", range(3))
def test_it_says_what_a_dictionary_says(seed: int) -> None:
    chance = random.Random(seed)
    table, plain = BlockTable(), dict[int, int]()
    names = [chance.randrange(1, 2**63 + 1) for _ in range(3_000)]
    for _ in range(20_000):
        name, tier = chance.choice(names), chance.choice(list(Tier))
        if chance.random() < 0.6:
            table.add(name, tier)
            plain[name] = plain.get(name, 0) | tier
        else:
            table.discard(name, tier)
            plain[name] = plain.get(name, 0) & ~tier
    assert {name: table.tiers(name) for name in names} == {name: plain.get(name, 0) for name in names}
    assert len(table) == sum(map(bool, plain.values()))
    ends = next(place for place, name in enumerate(names) if not plain.get(name, 0))
    assert table.leading(names) == [plain[name] for name in names[:ends]]


def test_a_block_takes_24_bytes_at_most() -> None:
    table = BlockTable()
    for name in range(1, 100_001):
        table.add(name * 0x9E3779B97F4A7C15 % 2**63 + 1, Tier.HOST)
    assert table.num_bytes <= 24 * len(table)
