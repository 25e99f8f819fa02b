"""Pages of an arena that are lent to another engine, beside a model of this one."""

from __future__ import annotations

from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.device.block_pool import BlockPool
from gpu_node.engine.offload.lent_pages import LentPages


def test_as_many_are_lent_as_nobody_has_a_right_to_and_nobody_takes_them() -> None:
    arena = PageArena(6)
    own = BlockPool(arena, blocks_per_page=1, num_pages=2)
    lent = LentPages(arena)
    assert lent.lend(3) == [0, 1, 2]
    assert lent.lend(3) == [3], "two are the model's by right"
    assert own.num_free == 2
    arena.check()


def test_what_comes_back_is_lent_again_first_or_taken_by_who_asks() -> None:
    arena = PageArena(4)
    own = BlockPool(arena, blocks_per_page=1)
    lent = LentPages(arena)
    assert lent.lend(3) == [0, 1, 2]
    assert lent.held([1, 2, 3]) == [1, 2]
    lent.take_back([1, 2, 3])
    assert lent.num_lent == 1
    assert own.num_free == 3
    assert lent.lend(1)[0] in (1, 2)
    assert sorted(own.take() for _ in range(2)) in ([1, 3], [2, 3])
    assert lent.lend(1) == []
    arena.check()


def test_who_leaves_lends_nothing_any_more() -> None:
    arena = PageArena(2)
    lent = LentPages(arena)
    lent.lend(2)
    lent.close()
    assert BlockPool(arena, blocks_per_page=1).num_free == 2
