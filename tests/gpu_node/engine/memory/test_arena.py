"""How a memory is cut into pages, and who has which page: worked by hand with two models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.arena import ArenaFullError, PageArena
from gpu_node.engine.memory.block_manager import BlockManager
from shared.files.kv_paging import MAX_PAGES, MAX_WASTE, MIN_PAGE_BYTES, Paging, paging

MIB = 1 << 20


def model(name: str, num_pages: int, blocks_per_page: int, block_size: int = 4, max_model_len: int = 8) -> LoadedModel:
    return LoadedModel(
        name=name,
        num_blocks=num_pages * blocks_per_page,
        block_size=block_size,
        block_bytes=0,
        max_model_len=max_model_len,
        vocab_size=100,
        eos_token_ids=frozenset(),
        num_pages=num_pages,
    )


def two_models(num_pages: int) -> tuple[BlockManager, BlockManager]:
    """Of 4 and of 2 blocks a page; each has a right to one page."""
    device, host = PageArena(num_pages), PageArena(1)
    return (
        BlockManager(model("wide", num_pages, 4), device, host),
        BlockManager(model("tall", num_pages, 2), device, host),
    )


def compute(blocks: BlockManager, sequence_id: int, token_ids: list[int]) -> list[int]:
    """Open a sequence, compute all of it, and say which blocks it has."""
    start = blocks.open(sequence_id, token_ids)
    blocks.append(sequence_id, start, len(token_ids))
    blocks.publish(sequence_id, token_ids, len(token_ids))
    blocks.check()
    return list(blocks.table(sequence_id))


@pytest.mark.parametrize(
    ("memory_bytes", "max_models", "expected"),
    [
        (512 * MIB, 1, Paging(1, 512 * MIB)),  # for itself: nothing is cut off
        (512 * MIB, 2, Paging(32, 16 * MIB)),
        (500 * MIB, 4, Paging(31, 16 * MIB)),
        (24 * MIB, 2, Paging(12, MIN_PAGE_BYTES)),
        (3 * MIB, 2, Paging(1, 2 * MIB)),
        (1 * MIB, 2, Paging(1, 1 * MIB)),
        (0, 2, Paging(1, 0)),
    ],
)
def test_a_shared_memory_is_cut_into_a_few_large_pages(memory_bytes: int, max_models: int, expected: Paging) -> None:
    assert paging(memory_bytes, max_models) == expected


@given(st.integers(2 * MIB, 1 << 40), st.integers(1, 8), st.integers(1, 1 << 30))
def test_pages_lie_in_the_memory_and_25_blocks_leave_little_of_a_page(
    memory_bytes: int, max_models: int, block_bytes: int
) -> None:
    cut = paging(memory_bytes, max_models)
    assert cut.num_pages * cut.page_bytes <= memory_bytes
    assert 1 <= cut.num_pages <= MAX_PAGES
    assert cut.page_bytes >= MIN_PAGE_BYTES
    if cut.blocks_per_page(block_bytes) >= 25:
        assert cut.waste(block_bytes) < MAX_WASTE


def test_each_model_cuts_its_pages_into_its_own_blocks() -> None:
    wide, tall = two_models(num_pages=3)
    assert compute(wide, 0, [1] * 20) == [0, 1, 2, 3, 4]  # pages 0 and 1
    assert wide.free_blocks == [5, 6, 7]
    assert (wide.num_free_blocks, tall.num_free_blocks) == (3, 2)  # page 2 is the other's by right
    assert compute(tall, 0, [1] * 8) == [4, 5]  # page 2
    assert (wide.num_free_blocks, tall.num_free_blocks) == (3, 0)


def test_what_a_model_has_a_right_to_is_not_lent() -> None:
    wide, tall = two_models(num_pages=2)
    assert (wide.num_free_blocks, tall.num_free_blocks) == (4, 2)
    compute(wide, 0, [1] * 16)
    assert (wide.num_free_blocks, tall.num_free_blocks) == (0, 2)


def test_own_cached_content_goes_before_a_page_of_another_model() -> None:
    wide, tall = two_models(num_pages=3)
    compute(tall, 0, [1] * 16)  # both pages that it may have
    tall.free(0)
    compute(wide, 0, [2] * 16)
    wide.free(0)
    assert wide.free_blocks == [11, 10, 9, 8]
    assert wide.num_free_blocks == 4 + 4  # of the two idle pages, one is lent
    assert compute(wide, 1, [3] * 20) == [11, 10, 9, 8, 4]  # page 1 has been idle longest
    assert tall.match([1] * 17) == [0, 1]  # the beginning of its prefix is left
    tall.check()


def test_a_lent_page_comes_back_when_none_of_its_blocks_is_held() -> None:
    wide, tall = two_models(num_pages=3)
    compute(wide, 0, [1] * 16)
    compute(wide, 1, [2] * 16)  # pages 0 and 1
    assert tall.num_free_blocks == 2
    wide.free(0)  # page 0: cached, held by nobody
    assert tall.num_free_blocks == 4
    assert compute(tall, 0, [3] * 16) == [4, 5, 0, 1]
    assert wide.match([1] * 17) == []
    wide.free(1)
    assert wide.num_free_blocks == 4
    tall.free(0)
    assert wide.num_free_blocks == 4 + 4
    tall.close()
    assert wide.num_free_blocks == 12
    wide.check()


def test_a_model_without_room_for_one_sequence_is_not_let_in() -> None:
    device, host = PageArena(3), PageArena(1)
    wide = BlockManager(model("wide", 3, 4), device, host)
    compute(wide, 0, [1] * 36)
    tall = model("tall", 3, 2, max_model_len=16)  # a right to two pages
    with pytest.raises(ArenaFullError, match="2 pages are needed; 0 are not in use"):
        BlockManager(tall, device, host)
    wide.free(0)
    wide.check()
    assert BlockManager(tall, device, host).num_free_blocks == 4
    assert wide.num_free_blocks == 4
