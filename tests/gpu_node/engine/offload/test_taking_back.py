"""Pages that a sender gives back are refused to it before anybody else may fill them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.device.block_pool import BlockPool
from gpu_node.engine.offload.offloading import Offloading
from shared.messages.memory.link_sizes import LinkSizes

LINK = LinkName("hot", "cold")
SIZES = LinkSizes(1, 16, 1, 1, 8, 4, 8, 8, 64)


class Device:
    """Writes down what a link may use, beside what its owner could fill at that time."""

    def __init__(self, own: BlockPool) -> None:
        self._own = own
        self.refused: list[tuple[list[int], int]] = []

    @property
    def links(self) -> Device:
        return self

    def receive(self, link: LinkName, sizes: LinkSizes) -> None:
        assert (link, sizes) == (LINK, SIZES)

    def lend(self, link: LinkName, pages: Iterable[int]) -> None:
        assert link == LINK

    def take_back(self, link: LinkName, pages: Iterable[int]) -> None:
        assert link == LINK
        self.refused.append((sorted(pages), self._own.num_free))

    # what a link has beside that, and is not asked for here
    num_served = 0
    send = served_generation = adapt = times = close_link = None


def test_a_page_is_refused_to_its_sender_before_it_is_anybody_elses() -> None:
    arena = PageArena(4)
    own = BlockPool(arena, blocks_per_page=1)
    device = Device(own)
    offload = Offloading(cast("Executor", device), arena, page_bytes=1, max_num_seqs=8)
    offload.receive(LINK, SIZES)
    assert offload.lend(LINK, 3) == [0, 1, 2]
    assert own.num_free == 1
    offload.take_back(LINK, [1, 2])
    assert device.refused == [([1, 2], 1)], "both, while the owner could fill none of them"
    assert own.num_free == 3
