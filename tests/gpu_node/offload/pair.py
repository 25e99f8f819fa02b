"""Two devices with a link between them, and one that has all at home."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path

from gpu_node.kernels.cpu import CpuArena, CpuDevice, CpuLinkReceiver, CpuLinkSender, Type
from gpu_node.kernels.link_file import link_path
from tests.gpu_node.offload.attention_engine import BLOCKS_PER_PAGE, NUM_PAGES, AttentionEngine, Grown, Part, Sizes
from tests.gpu_node.offload.waiting import wait_until

NUM_TABLE = 40
"""Blocks of a sequence."""
PAGE_BYTES = 1 << 24
"""Of a receiver: all blocks of a sender's sequences lie in one page."""
COLD = Sizes(num_heads=2, num_kv_heads=1, head_dim=8, block_size=16, num_layers=1)
LENT_PAGES = range(1, NUM_PAGES)
"""The first is for the receiver's own blocks."""
SENDER, RECEIVER = "hot-1", "cold-1"
Rows = list[tuple[Grown, int]]
"""Sequences, and how many rows each adds."""
RIGHT, LOST = (False, True, True), (True, True, False)
"""What `Pair.step` tells."""


class Pair:
    """A sender, and a device that has all at home."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        sizes: Sizes,
        *,
        num_threads: int = 1,
        out: Type = Type.FLOAT32,
        deadline_s: float = 20.0,
        page_bytes: int = 0,
        num_parts: int = 1,
    ) -> None:
        self.sizes, self.folder = sizes, folder
        self._stack = stack
        self.home = stack.enter_context(closing(AttentionEngine(sizes, 1, out, offloads=False)))
        self.away = stack.enter_context(
            closing(AttentionEngine(sizes, num_threads, out, page_bytes=page_bytes, num_parts=num_parts))
        )
        sender = CpuLinkSender(sizes.link(), SENDER, RECEIVER, deadline_s=deadline_s, folder=folder)
        self.link = stack.enter_context(closing(sender))
        self.path = link_path(folder, SENDER, RECEIVER)
        self.page_bytes = PAGE_BYTES
        """Of the receiver."""

    def receive(self, device: CpuDevice, arena: CpuArena) -> CpuLinkReceiver:
        """Open the other end, lend everything and wait until it serves."""
        receiver = CpuLinkReceiver(self.sizes.link(), SENDER, RECEIVER, device=device, arena=arena, folder=self.folder)
        self._stack.enter_context(closing(receiver))
        receiver.lend(LENT_PAGES)
        wait_until(lambda: self.link.is_open)
        return receiver

    def step(self, local: Rows, remote: Rows, seed: int, generation: int | None = None) -> tuple[bool, bool, bool]:
        """One step at home and with ``remote`` away.

        Whether the remote part is lost, and whether every bit of local and of remote rows is that of home.
        """
        everything = [(Grown(one.blocks, one.length), number) for one, number in (*local, *remote)]
        expected = self.home.answers(self.home.run([Part(everything)], seed))
        there = [(self._there(one), number) for one, number in remote]
        away = Part(there, self.link, self.link.generation if generation is None else generation)
        step = self.away.run([Part(local), away], seed)
        for one, number in remote:
            one.length += number
        num_local = sum(number for _, number in local)
        same = self.away.answers(step) == expected
        return bool(step.remotes.lost[0]), bool(same[:, :num_local].all()), bool(same[:, num_local:].all())

    def _there(self, one: Grown) -> Grown:
        """The sequence in blocks of the second page of the receiver."""
        first = self.page_bytes // self.sizes.cache.block_bytes
        return Grown(tuple(first + block for block in one.blocks), one.length)


def sequences(number: int, chance: random.Random) -> list[Grown]:
    """With room for as many tokens as their blocks hold, blocks in no order."""
    blocks = chance.sample(range(NUM_PAGES * BLOCKS_PER_PAGE), number * NUM_TABLE)
    return [Grown(tuple(blocks[i * NUM_TABLE : (i + 1) * NUM_TABLE])) for i in range(number)]
