"""Whoever is late is not read: what was lost belongs to a generation that is over, and the next one begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import torch

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.border.plan import BlockMove
from gpu_node.executors.cuda.links.receiver import CudaLinkReceiver
from gpu_node.executors.cuda.links.remote_moves import RemoteMoves
from gpu_node.executors.cuda.links.ring_memory import cache_shape
from gpu_node.executors.cuda.links.sender import CudaLinkSender
from gpu_node.executors.cuda.links.window import LinkWindow
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving, nothing
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.cache import Places
from gpu_node.kernels.triton.launch import INTERPRETED
from shared.files.kv_paging import LINE_BYTES, Paging
from shared.messages.memory.link_sizes import LinkSizes

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a device's memory is opened by another process")

LINK = LinkName("hot-1", "cold-1")
SIZES = LinkSizes(1, 4, 2, 2, 8, num_slots=2, max_rows=3, max_sequences=3, max_blocks=15)
CPU = torch.device("cpu")
LINES = cache_shape(SIZES).block_lines(4)
WORDS = LINES * LINE_BYTES // 8
NUM_BLOCKS, NUM_PAGES = 4, 2
THERE = BlockMove(device_block=1, remote_block=NUM_BLOCKS + 2)
"""Into the second page of the receiver, which is lent."""


class Ends:
    """Both of one process."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.serving, self.asked = Serving(), AskedDevice()
        self.num_forgotten = 0
        self.here, self.there = (
            CudaArena(Paging(pages, NUM_BLOCKS * LINES * LINE_BYTES), CPU) for pages in (1, NUM_PAGES)
        )
        for arena in (self.here, self.there):
            arena.words.random_()
        window = LinkWindow.make(folder, LINK, SIZES, torch.float32, CPU)
        self.sender = CudaLinkSender(window, self.asked, LINES, 1, self.forget)
        stack.callback(lambda: self.sender.close().close())
        opened = LinkWindow.open(folder, LINK, SIZES, torch.float32, CPU)
        self.receiver = CudaLinkReceiver(opened, NUM_PAGES, NUM_BLOCKS * LINES, CPU, nothing)
        self.receiver.lend([1])
        self.moves = RemoteMoves(self.here, Places(NUM_BLOCKS * LINES, LINES), torch.float32, self.serving)

    def forget(self) -> None:
        self.num_forgotten += 1

    def poll(self) -> None:
        poll(self.receiver.tasks, self.there.numbers(torch.float32))

    def put(self) -> bool:
        """Whether a step that sends a block in the sender's generation has lost it; the link hears of that."""
        generation = self.sender.served_generation()
        ring = self.asked.ring
        assert ring is not None
        is_lost = self.sender.step(generation)
        self.moves.send(ring, [THERE])
        if bool(is_lost):
            self.sender.lose(generation)
        return bool(is_lost)

    @property
    def own(self) -> torch.Tensor:
        return self.here.words[WORDS : 2 * WORDS]

    @property
    def others(self) -> torch.Tensor:
        return self.there.words[(NUM_BLOCKS + 2) * WORDS : (NUM_BLOCKS + 3) * WORDS]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(tmp_path, stack)


def test_a_receiver_that_is_late_is_lost_and_used_again_in_the_next_generation(ends: Ends) -> None:
    assert ends.sender.served_generation() == 0, "it has not accepted"
    ends.receiver.look()
    assert ends.sender.served_generation() == 1
    assert ends.put(), "nobody looks"
    assert ends.sender.served_generation() == 0
    ends.poll()  # late: the answer falls into a generation that is over
    ends.receiver.look()
    assert ends.sender.served_generation() == 2
    assert ends.num_forgotten == 1, "the ring is the same, and so are graphs"
    ends.serving.meanwhile = ends.poll
    ends.own.random_()
    assert not ends.put()
    assert ends.others.equal(ends.own)
    assert ends.receiver.num_served == 2


def test_what_is_asked_for_and_never_served_is_forgotten_with_its_generation(ends: Ends) -> None:
    ends.receiver.look()
    before = ends.others.clone()
    assert ends.put()
    ends.receiver.look()
    ends.poll()
    assert ends.others.equal(before)
    assert ends.receiver.num_served == 0
    ends.serving.meanwhile = ends.poll
    assert not ends.put()
    assert ends.receiver.num_served == 1


def test_a_step_of_another_generation_sends_nothing_and_loses(ends: Ends) -> None:
    ends.receiver.look()
    assert ends.sender.served_generation() == 1
    ends.serving.meanwhile = ends.poll
    before = ends.others.clone()
    ring = ends.asked.ring
    assert ring is not None
    is_lost = ends.sender.step(generation=7)
    ends.moves.send(ring, [THERE])
    assert bool(is_lost)
    assert ends.others.equal(before)
    assert int(ring.asked) == 0


def test_pages_that_are_taken_back_are_touched_no_more(ends: Ends) -> None:
    ends.receiver.look()
    ends.serving.meanwhile = ends.poll
    assert not ends.put()
    ends.receiver.take_back([1])
    before = ends.there.words.clone()
    ends.own.random_()
    assert ends.put()
    assert ends.there.words.equal(before)


def test_a_receiver_that_closes_is_lost_without_a_wait(ends: Ends) -> None:
    ends.receiver.look()
    assert ends.sender.served_generation() == 1
    with closing(ends.receiver):
        pass
    ring = ends.asked.ring
    assert ring is not None
    is_lost = ends.sender.step(1)
    ends.moves.send(ring, [THERE])
    assert bool(is_lost)
    ends.sender.lose(1)
    assert ends.sender.served_generation() == 0
