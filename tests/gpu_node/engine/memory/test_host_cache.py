"""Copies of full blocks in host memory, worked by hand: blocks of 4 tokens."""

from __future__ import annotations

from gpu_node.engine.border.plan import BlockSwap, StepPlan
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.tiers.tier_lookup import BroughtIn

A, B, C = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]


def manager(num_blocks: int, num_host_blocks: int, *, has_store: bool = False) -> BlockManager:
    return BlockManager.alone(
        num_blocks, 4, "m", num_host_blocks=num_host_blocks, caches_in_host=True, has_store=has_store
    )


def compute(blocks: BlockManager, sequence_id: int, token_ids: list[int]) -> list[BlockSwap]:
    """Run a sequence to its end; the copies of the plan behind it."""
    start = blocks.open(sequence_id, token_ids)
    blocks.append(sequence_id, start, len(token_ids))
    blocks.publish(sequence_id, token_ids, len(token_ids))
    copies = blocks.copies_out()
    blocks.free(sequence_id)
    blocks.check()
    return copies


def test_full_blocks_are_copied_once_and_come_back_when_the_device_has_given_them_up() -> None:
    blocks = manager(3, num_host_blocks=4)
    assert compute(blocks, 0, [*A, *B, 20]) == [BlockSwap(0, 0), BlockSwap(1, 1)]
    assert compute(blocks, 1, [*A, *B, 21]) == []
    assert compute(blocks, 2, [30] * 8) == [BlockSwap(2, 2), BlockSwap(1, 3)]  # B goes first: it is the end of a prefix
    assert blocks.match([*A, *B, 20]) == [0]
    assert blocks.open(3, [*A, *B, 20]) == 4
    assert blocks.bring_in(3, [*A, *B, 20]) == BroughtIn((BlockSwap(1, 1),), num_tokens=4)
    assert blocks.table(3) == [0, 1]
    assert blocks.match([*A, *B, 20]) == [0, 1]
    blocks.check()


def test_the_last_token_is_computed() -> None:
    blocks = manager(2, num_host_blocks=2)
    compute(blocks, 0, [*A, *B])
    compute(blocks, 1, [30] * 8)
    blocks.open(2, [*A, *B])
    assert blocks.bring_in(2, [*A, *B]).num_tokens == 0  # host memory has [30] * 8 now
    blocks.free(2)
    blocks.open(3, [30] * 8)
    assert blocks.table(3) == [1]


def test_what_was_used_longest_ago_goes_first() -> None:
    blocks = manager(4, num_host_blocks=2)
    compute(blocks, 0, [*A, 20])
    compute(blocks, 1, [*B, 20])
    blocks.open(2, [*A, 21])  # on the device still: used all the same
    blocks.free(2)
    assert compute(blocks, 3, [*C, 20]) == [BlockSwap(2, 1)]


def test_what_comes_back_is_not_overwritten_by_the_same_plan() -> None:
    blocks = manager(2, num_host_blocks=1)
    compute(blocks, 0, [*A, 20])
    blocks.open(1, [*B, 20])  # B becomes full in the step that is in flight
    blocks.append(1, 0, 4)
    blocks.publish(1, [*B, 20], 4)
    blocks.forget_cached()
    blocks.open(2, [*A, 21])
    assert blocks.bring_in(2, [*A, 21]).swaps == (BlockSwap(0, 0),)
    assert blocks.copies_out() == []  # the only host block is read by this plan
    assert blocks.host.num_lost == 1
    blocks.check()


def test_a_prefix_is_brought_in_as_far_as_blocks_are_free() -> None:
    blocks = manager(3, num_host_blocks=4)
    compute(blocks, 0, [*A, *B, *C])
    blocks.forget_cached()
    blocks.open(1, [30] * 5)
    blocks.append(1, 0, 5)
    blocks.open(2, [*A, *B, *C])
    assert blocks.bring_in(2, [*A, *B, *C]).swaps == (BlockSwap(0, 0),)
    blocks.check()


def test_what_the_device_has_behind_a_gap_is_shared() -> None:
    blocks = manager(6, num_host_blocks=4)
    for sequence_id, token_ids in enumerate(([*A, 20], [*A, *B, 20])):  # together, so A is computed twice
        blocks.open(sequence_id, token_ids)
        blocks.append(sequence_id, 0, len(token_ids))
    blocks.publish(0, [*A, 20], 5)
    blocks.publish(1, [*A, *B, 20], 9)
    assert blocks.copies_out() == [BlockSwap(0, 0), BlockSwap(3, 1)]
    blocks.free(0)
    blocks.open(2, [30] * 9)
    blocks.append(2, 0, 9)  # the device gives up A, as it was offered
    blocks.free(2)
    assert blocks.open(3, [*A, *B, 21]) == 0
    assert blocks.bring_in(3, [*A, *B, 21]) == BroughtIn((BlockSwap(1, 0),), num_tokens=8)
    assert blocks.table(3) == [1, 3]
    blocks.check()


def test_full_blocks_without_room_are_counted() -> None:
    blocks = manager(4, num_host_blocks=0)
    assert compute(blocks, 0, [*A, *B, 20]) == []
    assert blocks.host.num_lost == 2


def test_swapped_out_sequences_go_before_copies() -> None:
    blocks = manager(4, num_host_blocks=2)
    compute(blocks, 0, [*A, 20])
    blocks.open(1, [*B, 20])
    blocks.append(1, 0, 5)
    assert blocks.can_swap_out([1])
    assert blocks.swap_out([1]) == (BlockSwap(1, 1), BlockSwap(2, 0))
    assert blocks.copies_out() == []
    assert blocks.num_used_host_blocks == 2
    blocks.check()


def test_with_a_store_a_copy_is_held_until_it_is_written() -> None:
    blocks = manager(4, num_host_blocks=2, has_store=True)
    copies = compute(blocks, 0, [*A, 20])
    assert blocks.host.pop_copied() == []
    blocks.end(StepPlan((), swaps_out=tuple(copies)))
    (copied,) = blocks.host.pop_copied()
    assert (copied.block, copied.prefix.token_ids) == (0, tuple(A))
    blocks.check()
    assert compute(blocks, 1, [*B, *C, 20]) == [BlockSwap(1, 1)]  # the other one is held
    assert blocks.host.num_lost == 1
    blocks.host.release_copy(0)
    blocks.check()
    assert blocks.host.find(copied.prefix) == 0


def test_what_is_read_from_a_store_is_found_when_it_is_whole() -> None:
    blocks = manager(4, num_host_blocks=2, has_store=True)
    chain, num_found = blocks.lookup.chain([*A, *B, 20])
    assert ([prefix.token_ids for prefix in chain], num_found) == ([tuple(A), tuple(B)], 0)
    assert [blocks.host.begin_read(prefix) for prefix in chain] == [0, 1]
    blocks.check()
    blocks.host.end_read(chain[0].digest, is_whole=True)
    blocks.host.end_read(chain[1].digest, is_whole=False)
    blocks.check()
    blocks.open(0, [*A, *B, 20])
    brought = blocks.bring_in(0, [*A, *B, 20])
    assert brought == BroughtIn((BlockSwap(0, 0),), num_tokens=4, num_store_tokens=4)
    assert blocks.lookup.chain([*A, *B, 20])[1] == 1


def test_a_model_that_goes_lets_go_of_everything() -> None:
    blocks = manager(4, num_host_blocks=4, has_store=True)
    copies = compute(blocks, 0, [*A, 20])
    blocks.host.begin_read(blocks.lookup.chain([*B, 1])[0][0])
    blocks.close()
    blocks.end(StepPlan((), swaps_out=tuple(copies)))  # of a step that was in flight
