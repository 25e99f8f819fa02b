"""Blocks go to another device's arena and come back, through a ring whose content holds two at a time."""

from __future__ import annotations

import pytest
import torch

from gpu_node.kernels.triton.attention.gather import ask_move, settle
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import PUT, TAKE, LentLines, PollCounters, RingSizes, TaskRing, Tasks
from gpu_node.kernels.triton.cache import CacheShape, Places
from tests.gpu_node.kernels.triton.buffers import DEVICE

SHAPE = CacheShape(num_layers=2, block_size=5, num_kv_heads=3, head_dim=24)
SLOTS, SEQUENCES, BLOCKS, MOVED, INSTANCES = 2, 2, 3, 2, 3
NUM_PAGES, PAGE_BLOCKS = 3, 4


class Receiver:
    """Its pages are larger than the blocks in them; the second one is lent."""

    def __init__(self, dtype: torch.dtype) -> None:
        lines = SHAPE.block_lines(dtype.itemsize)
        self.places = Places(PAGE_BLOCKS * lines + 1, lines)
        self.line_numbers = 64 // dtype.itemsize
        page_numbers = self.places.page_lines * self.line_numbers
        self.arena = torch.randn(NUM_PAGES * page_numbers, device=DEVICE).to(dtype)
        sizes = RingSizes(SLOTS, SEQUENCES, BLOCKS, 6 * SHAPE.head_dim, MOVED)
        ring = TaskRing.of(SHAPE, sizes, dtype, lambda size, kind: torch.zeros(size, dtype=kind, device=DEVICE))
        counters = PollCounters.new(INSTANCES, SLOTS, DEVICE)
        is_lent = torch.tensor([0, 1, 0], dtype=torch.int32, device=DEVICE)
        self.tasks = Tasks(counters, ring, LentLines(is_lent, self.places.page_lines))
        self.asks = RemoteRing.new(counters, ring, self.places, max_looks=1)

    def block(self, number: int) -> torch.Tensor:
        first = self.places.line(number) * self.line_numbers
        return self.arena[first : first + SHAPE.block_numbers(self.arena.element_size())]

    def move(self, kind: int, lines: list[int]) -> None:
        ask_move(self.asks, kind, torch.tensor(lines, dtype=torch.int32, device=DEVICE))
        poll(self.tasks, self.arena)
        settle(self.asks, None, self.arena)

    def lines(self, *blocks: int) -> list[int]:
        return [self.places.line(block) for block in blocks]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_blocks_are_put_and_taken_bit_by_bit_and_nothing_beside_them_changes(dtype: torch.dtype) -> None:
    receiver = Receiver(dtype)
    content = receiver.tasks.ring.content
    for blocks in ((4, 6), (7,), (5, 4)):
        before = receiver.arena.clone()
        given = torch.randn(len(blocks), content.shape[1], device=DEVICE).to(dtype)
        content[: len(blocks)] = given
        receiver.move(PUT, receiver.lines(*blocks))
        for number, block in enumerate(blocks):
            assert receiver.block(block).equal(given[number])
            receiver.block(block).copy_(before[receiver.places.line(block) * receiver.line_numbers :][: len(given[0])])
        assert receiver.arena.equal(before)
    receiver.move(TAKE, receiver.lines(6, 5))
    assert content[0].equal(receiver.block(6))
    assert content[1].equal(receiver.block(5))
    assert not receiver.asks.is_lost
    assert int(receiver.tasks.counters.served) == int(receiver.asks.gathered) == 4


@pytest.mark.parametrize("kind", [PUT, TAKE])
@pytest.mark.parametrize("line", ["of another page", "across the end of a page", "behind the arena", "before it"])
def test_blocks_that_are_not_lent_are_not_touched(kind: int, line: str) -> None:
    receiver = Receiver(torch.float32)
    places = receiver.places
    lines = {
        "of another page": places.line(3),
        "across the end of a page": 2 * places.page_lines - 1,
        "behind the arena": NUM_PAGES * places.page_lines,
        "before it": -1,
    }
    receiver.tasks.ring.content.fill_(7.0)
    before = receiver.arena.clone()
    receiver.move(kind, [places.line(4), lines[line]])
    assert receiver.asks.is_lost
    assert receiver.arena.equal(before)
    assert bool((receiver.tasks.ring.content == 7.0).all())
    asked = int(receiver.tasks.counters.asked)
    receiver.move(kind, [places.line(4)])
    assert int(receiver.tasks.counters.asked) == asked, "who is lost is asked for nothing"
