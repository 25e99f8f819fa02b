"""Blocks of 4 tokens that move to host memory and back, worked by hand."""

from __future__ import annotations

from gpu_node.engine.border.plan import BlockSwap
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.device.device_blocks import BlockPlace
from shared.config.engines.engine import SwapCopies
from shared.messages.memory.tiers import Tier

A, B = [1, 2, 3, 4], [5, 6, 7, 8]


def manager(num_blocks: int, num_host_blocks: int) -> BlockManager:
    return BlockManager.alone(num_blocks, block_size=4, model="m", num_host_blocks=num_host_blocks)


def compute(blocks: BlockManager, sequence_id: int, token_ids: list[int]) -> None:
    start = blocks.open(sequence_id, token_ids)
    blocks.append(sequence_id, start, len(token_ids))
    blocks.publish(sequence_id, token_ids, len(token_ids))
    blocks.check()


def test_a_sequence_goes_to_host_memory_and_comes_back_to_other_blocks() -> None:
    blocks = manager(4, num_host_blocks=3)
    compute(blocks, 0, [*A, *B, 9])
    assert blocks.can_swap_out([0])
    assert blocks.swap_out([0]) == (BlockSwap(0, 0), BlockSwap(1, 1), BlockSwap(2, 2))
    assert blocks.is_swapped_out(0)
    assert (blocks.num_used_blocks, blocks.num_free_blocks) == (0, 4)
    blocks.check()
    compute(blocks, 1, [20] * 8)
    assert blocks.table(1) == [2, 3]
    blocks.free(1)
    assert blocks.num_swap_in_blocks([0]) == 3
    # 1, 0 still hold B and A, which do not move; of the others the oldest content is given up first
    assert blocks.free_blocks == [1, 0, 3, 2]
    assert blocks.swap_in([0]) == (BlockSwap(3, 2),)
    assert blocks.table(0) == [0, 1, 3]
    assert not blocks.is_swapped_out(0)
    blocks.check()


def test_what_comes_back_full_is_offered_for_reuse_again() -> None:
    blocks = manager(3, num_host_blocks=3)
    compute(blocks, 0, [*A, *B, 9])
    blocks.swap_out([0])
    compute(blocks, 1, [20] * 12)
    assert blocks.match([*A, *B, 9]) == []
    blocks.free(1)
    blocks.swap_in([0])
    assert blocks.match([*A, *B, 9]) == list(blocks.table(0)[:2])
    blocks.publish(0, [*A, *B, 9, 10, 11, 12], 12)
    assert blocks.match([*A, *B, 9, 10, 11, 12, 13]) == blocks.table(0)


def test_what_stayed_cached_on_the_device_is_found_until_it_is_taken() -> None:
    blocks = manager(6, num_host_blocks=2)
    compute(blocks, 0, [*A, 9])
    blocks.swap_out([0])
    assert blocks.open(1, [*A, 10]) == 4
    blocks.swap_in([0])
    assert blocks.match([*A, 11]) == blocks.table(1)  # offered once
    blocks.check()


def test_what_was_given_up_comes_back_and_only_that() -> None:
    """Of A, B and the 9, the tail is given up first: B's block and the 9's are another's by now."""
    blocks = manager(5, num_host_blocks=3)
    compute(blocks, 0, [*A, *B, 9])
    blocks.swap_out([0])
    compute(blocks, 1, [20] * 16)
    assert blocks.match([*A, *B]) == [0]
    blocks.free(1)
    assert blocks.num_swap_in_blocks([0]) == 3
    moved = blocks.swap_in([0])
    assert [swap.host_block for swap in moved] == [1, 2]
    assert blocks.table(0)[0] == 0
    assert blocks.num_free_blocks == 2
    blocks.check()


def test_what_another_holds_takes_no_free_block() -> None:
    blocks = manager(4, num_host_blocks=2)
    compute(blocks, 0, [*A, 9])
    compute(blocks, 1, [*A, 10])
    blocks.swap_out([1])
    assert blocks.num_swap_in_blocks([1]) == 1
    assert [swap.host_block for swap in blocks.swap_in([1])] == [1]
    assert blocks.table(1)[0] == blocks.table(0)[0]
    blocks.check()


def test_what_sequences_share_moves_once_and_stays_shared() -> None:
    blocks = manager(8, num_host_blocks=4)
    compute(blocks, 0, [*A, 5, 6])
    blocks.fork(0, 1)
    blocks.append(1, 6, 7)
    assert (list(blocks.table(0)), list(blocks.table(1))) == ([0, 1], [0, 2])
    assert blocks.swap_out([0, 1]) == (BlockSwap(0, 0), BlockSwap(1, 1), BlockSwap(2, 2))
    assert blocks.num_swap_in_blocks([0, 1]) == 3
    assert [swap.host_block for swap in blocks.swap_in([0, 1])] == [1, 2]  # A is on the device still
    first, second = blocks.table(0), blocks.table(1)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert blocks.num_new_blocks(0, 6, 7) == 0  # alone with its last block, as before
    blocks.check()


def test_others_keep_what_they_share_with_who_is_swapped_out() -> None:
    blocks = manager(4, num_host_blocks=2)
    compute(blocks, 0, [*A, 9])
    compute(blocks, 1, [*A, 10])
    assert blocks.swap_out([1]) == (BlockSwap(0, 0), BlockSwap(2, 1))
    assert blocks.table(0) == [0, 1]
    assert blocks.num_used_blocks == 2
    blocks.check()


def test_without_room_in_host_memory_nothing_can_be_swapped_out() -> None:
    compute(none := manager(4, num_host_blocks=0), 0, A)
    assert not none.can_swap_out([0])
    blocks = manager(4, num_host_blocks=1)
    compute(blocks, 0, A)
    compute(blocks, 1, B)
    assert blocks.can_swap_out([0])
    assert not blocks.can_swap_out([0, 1])
    blocks.swap_out([0])
    assert not blocks.can_swap_out([1])
    blocks.free(0)  # gone for good while it is out
    assert blocks.can_swap_out([1])
    blocks.check()


def test_what_is_computed_while_a_sequence_is_out_is_offered_when_it_is_back() -> None:
    blocks = manager(4, num_host_blocks=2)
    blocks.open(0, [*A, 9])
    blocks.append(0, 0, 5)
    blocks.swap_out([0])
    blocks.publish(0, [*A, 9], 5)  # of the step that was in flight
    blocks.swap_in([0])
    assert blocks.match([*A, 9]) == []
    blocks.publish(0, [*A, 9, 10], 6)
    assert blocks.match([*A, 9]) == [blocks.table(0)[0]]


def lazy(num_blocks: int, num_host_blocks: int, swap_copies: SwapCopies = "late") -> BlockManager:
    return BlockManager.alone(
        num_blocks, block_size=4, model="m", num_host_blocks=num_host_blocks, swap_copies=swap_copies
    )


def test_late_only_what_is_taken_is_copied_and_only_when() -> None:
    """Of A, B and the 9, the 9's block cannot be found again; B's is taken by another, A's stays until it is back."""
    blocks = lazy(5, num_host_blocks=3)
    compute(blocks, 0, [*A, *B, 9])
    assert blocks.swap_out([0]) == (BlockSwap(2, 2),)
    assert (blocks.num_used_host_blocks, blocks.num_used_blocks) == (3, 0)
    assert blocks.moves_due() == []
    blocks.check()
    compute(blocks, 1, [20] * 16)
    assert blocks.moves_due() == [BlockSwap(1, 1)]
    assert blocks.moves_due() == [], "once"
    blocks.check()
    assert blocks.places(0) == [BlockPlace(Tier.DEVICE, 0), BlockPlace(Tier.HOST, 1), BlockPlace(Tier.HOST, 2)]
    blocks.free(1)
    assert [swap.host_block for swap in blocks.swap_in([0])] == [1, 2]
    assert blocks.moves_due() == []
    blocks.check()


def test_what_was_copied_once_is_not_copied_again() -> None:
    """B stays in host memory when the sequence is back; A never went there."""
    blocks = lazy(5, num_host_blocks=4)
    compute(blocks, 0, [*A, *B, 9])
    blocks.swap_out([0])
    compute(blocks, 1, [20] * 16)
    blocks.moves_due()
    blocks.free(1)
    blocks.swap_in([0])
    assert (blocks.num_used_host_blocks, blocks.num_free_host_blocks) == (0, 4), "it is given up to those who need it"
    assert blocks.num_copied_blocks([0]) == 1
    (partial,) = blocks.swap_out([0])
    assert blocks.places(0) == [
        BlockPlace(Tier.DEVICE, 0),
        BlockPlace(Tier.HOST, 1),
        BlockPlace(Tier.HOST, partial.host_block),
    ]
    compute(blocks, 2, [30] * 20)
    assert [swap.device_block for swap in blocks.moves_due()] == [0]
    blocks.check()


def test_a_sequence_that_ends_gives_its_places_back_and_copies_are_given_up_from_its_end_on() -> None:
    blocks = lazy(8, num_host_blocks=4, swap_copies="kept")
    compute(blocks, 0, [*A, *B, 9])
    assert len(blocks.swap_out([0])) == 3
    blocks.swap_in([0])
    compute(blocks, 1, [20] * 7)
    assert blocks.can_swap_out([1])
    assert [swap.host_block for swap in blocks.swap_out([1])] == [2, 3], "those without content"
    assert blocks.num_copied_blocks([0]) == 2
    compute(blocks, 2, [30] * 4)
    assert [swap.host_block for swap in blocks.swap_out([2])] == [1], "B goes before A"
    assert blocks.num_copied_blocks([0]) == 1
    blocks.check()


def test_what_is_copied_is_no_room_for_others_of_the_same_request() -> None:
    """Two blocks are free, and one of them has A: 9 and B need two beside it."""
    blocks = lazy(8, num_host_blocks=3, swap_copies="kept")
    compute(blocks, 0, [*A, 9])
    blocks.swap_out([0])
    blocks.swap_in([0])
    blocks.append(0, 5, 12)
    blocks.publish(0, [*A, *B, 9, 9, 9], 11)
    compute(blocks, 1, [40])
    blocks.swap_out([1])
    assert blocks.num_free_host_blocks == 2
    assert not blocks.can_swap_out([0])
    blocks.free(1)
    assert blocks.can_swap_out([0])
    blocks.check()


def test_before_blocks_are_written_ahead_of_a_plan_all_copies_are_made() -> None:
    blocks = lazy(4, num_host_blocks=3)
    compute(blocks, 0, [*A, *B])
    assert blocks.swap_out([0]) == ()
    assert blocks.copy_all_out()
    assert blocks.moves_due() == [BlockSwap(0, 0), BlockSwap(1, 1)]
    assert not blocks.copy_all_out()
    blocks.check()
