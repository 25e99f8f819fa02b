"""Blocks of 4 tokens, worked by hand: which block is taken, shared, copied and given up, and in which order."""

from __future__ import annotations

from gpu_node.engine.border.plan import BlockCopy
from gpu_node.engine.memory.block_manager import BlockManager

A, B, C = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]


def manager(num_blocks: int, model: str = "m") -> BlockManager:
    return BlockManager.alone(num_blocks, block_size=4, model=model)


def compute(blocks: BlockManager, sequence_id: int, token_ids: list[int]) -> list[int]:
    """Open a sequence, compute all of it, and say which blocks it has."""
    start = blocks.open(sequence_id, token_ids)
    blocks.append(sequence_id, start, len(token_ids))
    blocks.publish(sequence_id, token_ids, len(token_ids))
    blocks.check()
    return list(blocks.table(sequence_id))


def test_a_sequence_wastes_less_than_one_block() -> None:
    blocks = manager(4)
    assert blocks.open(0, [1] * 5) == 0
    assert blocks.num_new_blocks(0, 0, 5) == 2
    blocks.append(0, 0, 5)
    assert list(blocks.table(0)) == [0, 1]
    assert blocks.num_new_blocks(0, 5, 8) == 0
    assert blocks.num_new_blocks(0, 5, 9) == 1
    assert blocks.free_blocks == [2, 3]
    blocks.check()


def test_a_common_prefix_is_shared_block_by_block() -> None:
    blocks = manager(6)
    assert compute(blocks, 0, [*A, *B, 20]) == [0, 1, 2]
    assert compute(blocks, 1, [*A, *B, 21]) == [0, 1, 3]
    assert compute(blocks, 2, [*A, *C, 22]) == [0, 4, 5]
    assert blocks.num_free_blocks == 0


def test_the_last_token_is_always_computed() -> None:
    blocks = manager(6)
    compute(blocks, 0, [*A, *B])
    assert blocks.match([*A, *B]) == [0]
    assert blocks.match([*A, *B, 20]) == [0, 1]


def test_what_is_not_computed_yet_is_not_shared() -> None:
    blocks = manager(4)
    blocks.open(0, [*A, *B])
    blocks.append(0, 0, 8)
    blocks.publish(0, [*A, *B], 6)
    assert blocks.match([*A, *B, 20]) == [0]


def test_freed_blocks_are_found_again_and_given_up_tail_first() -> None:
    blocks = manager(5)
    compute(blocks, 0, [*A, *B, 20])  # 0, 1 and the unfinished 2
    blocks.free(0)
    # 2 holds nothing to reuse: first; 3, 4 were never used; then B's block before A's
    assert blocks.free_blocks == [2, 3, 4, 1, 0]
    assert compute(blocks, 1, [*A, *B, 30]) == [0, 1, 2]


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    blocks = manager(3)
    for sequence_id, tokens in enumerate((A, B, C)):
        assert compute(blocks, sequence_id, tokens) == [sequence_id]
        blocks.free(sequence_id)
    assert blocks.free_blocks == [0, 1, 2]
    assert blocks.open(3, [*A, 20]) == 4  # A is used again ...
    blocks.free(3)
    assert blocks.free_blocks == [1, 2, 0]  # ... so B is the oldest now
    assert compute(blocks, 4, [20] * 4) == [1]
    assert blocks.match([*B, 20]) == []
    assert blocks.match([*A, 20]) == [0]
    assert blocks.match([*C, 20]) == [2]


def test_a_shared_block_is_free_when_its_last_holder_is_gone() -> None:
    blocks = manager(4)
    compute(blocks, 0, [*A, 20])
    compute(blocks, 1, [*A, 21])
    blocks.free(0)
    assert blocks.free_blocks == [1, 3]
    blocks.free(1)
    assert blocks.free_blocks == [2, 1, 3, 0]
    blocks.check()


def test_a_fork_shares_all_and_copies_on_the_first_write() -> None:
    blocks = manager(5)
    compute(blocks, 0, [*A, 5, 6])
    blocks.fork(0, 1)
    assert list(blocks.table(1)) == [0, 1]
    assert blocks.num_free_blocks == 3
    assert blocks.num_new_blocks(1, 6, 7) == 1
    assert blocks.append(1, 6, 7) == (BlockCopy(source=1, destination=2),)
    assert list(blocks.table(1)) == [0, 2]
    assert blocks.append(0, 6, 7) == ()  # the parent is alone with its block again
    blocks.check()


def test_a_shared_block_with_nothing_to_keep_is_replaced_without_a_copy() -> None:
    blocks = manager(4)
    blocks.open(0, A + B)
    blocks.append(0, 0, 8)
    blocks.publish(0, A + B, 4)
    blocks.fork(0, 1)
    assert blocks.append(1, 4, 8) == ()
    assert list(blocks.table(1)) == [0, 2]
    blocks.check()


def test_a_prefix_computed_twice_at_the_same_time_is_offered_once() -> None:
    blocks = manager(6)
    for sequence_id in (0, 1):
        blocks.open(sequence_id, [*A, *B, 20])
        blocks.append(sequence_id, 0, 9)
    for sequence_id in (0, 1):
        blocks.publish(sequence_id, [*A, *B, 20], 9)
    assert blocks.match([*A, *B, 21]) == [0, 1]
    blocks.free(0)
    blocks.free(1)
    blocks.check()
    assert blocks.free_blocks == [3, 4, 5, 2, 1, 0]


def test_a_digest_is_never_trusted_without_the_tokens() -> None:
    blocks = BlockManager.alone(8, block_size=4, model="m", digest=lambda _parent, _token_ids: b"all alike")
    assert compute(blocks, 0, [*A, 20]) == [0, 1]
    assert blocks.match([*B, 20]) == []
    assert compute(blocks, 1, [*B, 20]) == [2, 3]
    assert blocks.match([*A, 21]) == [0]  # the first keeps the digest
    assert blocks.match([*B, 21]) == []


def test_an_orphan_is_not_taken_for_the_child_of_a_prefix_with_the_same_digest() -> None:
    def digest(parent: bytes, token_ids: tuple[int, ...]) -> bytes:
        return b"head" if list(token_ids) in (A, B) else parent + bytes(token_ids)

    blocks = BlockManager.alone(8, block_size=4, model="m", digest=digest)
    compute(blocks, 0, [*A, 20])  # A has the digest
    compute(blocks, 1, [*B, *C])  # C after B is offered, B itself is not
    assert blocks.match([*A, *C, 20]) == [0]


def test_what_the_device_has_lost_is_not_found_again() -> None:
    blocks = manager(5)
    compute(blocks, 0, [*A, *B, 20])
    blocks.free(0)
    assert blocks.match([*A, *B, 20]) == [0, 1]
    blocks.forget_cached()
    blocks.check()
    assert blocks.match([*A, *B, 20]) == []
    assert blocks.num_free_blocks == 5


def test_what_an_adapter_has_computed_is_found_by_it_alone() -> None:
    blocks = manager(12)
    tables = []
    for number, adapter in enumerate(("", "legal", "", "legal")):
        start = blocks.open(number, [*A, *B, 20], adapter)
        blocks.append(number, start, 9)
        blocks.publish(number, [*A, *B, 20], 9)
        blocks.check()
        tables.append(list(blocks.table(number)))
    assert tables == [[0, 1, 2], [3, 4, 5], [0, 1, 6], [3, 4, 7]]
    blocks.fork(1, 9)
    for number in (0, 1, 2, 3):
        blocks.free(number)
    assert blocks.match([*A, *B, 20], "legal") == [3, 4]
    assert blocks.match([*A, *B, 20], "rhymes") == []
    blocks.append(9, 9, 13)  # a fork is read by the adapter of what it is a fork of
    blocks.publish(9, [*A, *B, 20, 21, 22, 23, 24], 13)
    assert len(blocks.match([*A, *B, 20, 21, 22, 23, 24], "legal")) == 3
    assert len(blocks.match([*A, *B, 20, 21, 22, 23, 24])) == 2
