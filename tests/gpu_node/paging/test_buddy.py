"""The buddy allocator by hand: exact addresses, splits, merges and what fragmentation does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.paging.buddy import BuddyAllocator, order_for


def test_a_range_is_halved_until_it_fits_and_the_lowest_address_goes_first() -> None:
    buddy = BuddyAllocator(64)
    assert buddy.allocate(16) == 0
    assert buddy.free_ranges() == [(16, 16), (32, 32)]
    assert buddy.allocate(9) == 16, "9 slots take 16, and the smallest range that is large enough goes first"
    assert buddy.size(16) == 16
    assert buddy.allocate(1) == 32
    assert buddy.free_ranges() == [(33, 1), (34, 2), (36, 4), (40, 8), (48, 16)]
    assert buddy.num_free_slots == 31
    buddy.check()


def test_a_freed_range_joins_its_buddy_as_often_as_that_is_free() -> None:
    buddy = BuddyAllocator(32)
    assert [buddy.allocate(8) for _ in range(4)] == [0, 8, 16, 24]
    buddy.free(8)
    buddy.free(16)
    assert buddy.free_ranges() == [(8, 8), (16, 8)], "neighbours, but no buddies"
    buddy.free(24)
    assert buddy.free_ranges() == [(8, 8), (16, 16)]
    buddy.free(0)
    assert buddy.free_ranges() == [(0, 32)]
    buddy.check()


def test_enough_free_slots_in_too_small_ranges_are_of_no_use() -> None:
    buddy = BuddyAllocator(32)
    for _ in range(4):
        buddy.allocate(8)
    buddy.free(0)
    buddy.free(16)
    assert buddy.num_free_slots == 16
    assert buddy.allocate(16) is None
    assert buddy.allocate(33) is None
    assert buddy.allocate(8) == 0


def test_a_memory_that_is_no_power_of_two_begins_as_its_binary_digits() -> None:
    buddy = BuddyAllocator(15_728)
    sizes = [size for _, size in buddy.free_ranges()]
    assert sizes == [8192, 4096, 2048, 1024, 256, 64, 32, 16]
    assert [buddy.allocate(2048) for _ in range(8)] == [12288, 8192, 10240, 0, 2048, 4096, 6144, None], (
        "7, as in the paper"
    )
    for address in range(0, 14_336, 2048):
        buddy.free(address)
    assert [size for _, size in buddy.free_ranges()] == sizes, "nothing joins across what it was cut from"
    buddy.check()


@pytest.mark.parametrize(("num_slots", "order"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (2048, 11), (2049, 12)])
def test_the_order_of_a_size(num_slots: int, order: int) -> None:
    assert order_for(num_slots) == order


@given(st.integers(1, 100), st.lists(st.tuples(st.booleans(), st.integers(1, 100)), max_size=60))
def test_free_and_allocated_ranges_always_tile_the_memory(num_slots: int, actions: list[tuple[bool, int]]) -> None:
    buddy = BuddyAllocator(num_slots)
    began = buddy.free_ranges()
    held: list[int] = []
    for is_free, number in actions:
        if is_free and held:
            buddy.free(held.pop(number % len(held)))
        elif (address := buddy.allocate(number)) is not None:
            assert buddy.size(address) < 2 * number or number == 1
            held.append(address)
        buddy.check()
    for address in held:
        buddy.free(address)
    assert buddy.free_ranges() == began
