"""The sender's end of a link: the ring that a model's program asks by, generation after generation."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_node.executors.cuda.links.window import LinkWindow
from gpu_node.executors.cuda.program.link_ends import AskedDevice
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.cache import Places


class CudaLinkSender:
    """Of one model. Its program has a ring as soon as the receiver has opened the window."""

    def __init__(
        self,
        window: LinkWindow,
        asking: AskedDevice,
        block_lines: int,
        max_looks: int,
        forget_graphs: Callable[[], None],
    ) -> None:
        """``block_lines``: of the model's blocks. ``forget_graphs``: of the model, when it is another ring's."""
        self._window = window
        self._asking = asking
        self._block_lines = block_lines
        self._max_looks = max_looks
        self._forget_graphs = forget_graphs
        self._begun = 0  # the generation that the ring is in

    def served_generation(self) -> int:
        """That the receiver has accepted; 0 while it has not."""
        generation = self._window.generation
        if self._window.accepted != generation:
            return 0
        if self._begun != generation:
            self._begin()
            self._begun = generation
        return generation

    def _begin(self) -> None:
        """The receiver counts from what was asked for so far; nothing is under way."""
        self._window.hide()
        memory, ring = self._window.ring, self._asking.ring
        if ring is None:
            counters = (memory.asked, memory.served, memory.refused)
            places = Places(self._window.page_lines, self._block_lines)
            self._asking.ring = ring = RemoteRing.of(counters, memory.ring, places, self._max_looks)
            self._forget_graphs()
        for counter in (ring.sent, ring.gathered):
            counter.copy_(memory.asked)
        ring.arrived.zero_()
        ring.lost.zero_()

    def step(self, generation: int) -> torch.Tensor:
        """A step is queued that counts on what lies there in a generation: int32 [1], behind it 1 if that is lost."""
        ring = self._asking.ring
        assert ring is not None, "a plan is made for a receiver that has accepted"
        if generation != self._window.generation:
            ring.lost.fill_(1)
        return ring.lost

    def lose(self, generation: int) -> None:
        """A step has lost what lay there in that generation: nothing is asked for before the next one is accepted."""
        if generation == self._window.generation:
            self._window.next_generation()

    def close(self) -> LinkWindow:
        """Ask no more; no step that does is in the queue. The window is to be closed when no process maps it."""
        if self._asking.ring is not None:
            self._asking.ring = None
            self._forget_graphs()
        self._window.hide()
        return self._window
