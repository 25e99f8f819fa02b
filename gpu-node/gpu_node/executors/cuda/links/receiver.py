"""The receiver's end of a link: what its device serves, and over which pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from gpu_node.executors.cuda.links.late_number import LateNumber
from gpu_node.executors.cuda.links.window import CLOSED, LinkWindow
from gpu_node.kernels.triton.attention.poll import num_instances
from gpu_node.kernels.triton.attention.task_ring import LentLines, PartMemory, PollCounters, Tasks

_NO_MORE = 1 << 62
"""As tasks that were served: no sender waits."""


class CudaLinkReceiver:
    """Serves from its first look on."""

    def __init__(
        self, window: LinkWindow, num_pages: int, page_lines: int, device: torch.device, drain: Callable[[], None]
    ) -> None:
        """Pages of this device's arena; none is lent yet. ``drain`` waits for all that is queued."""
        self._window = window
        self._drain = drain
        memory = window.ring
        own = PollCounters.new(num_instances(memory.ring), len(memory.ring.kinds), device)
        counters = PollCounters(memory.asked, memory.served, memory.refused, own.done, own.arrived)
        lent = LentLines(torch.zeros(num_pages, dtype=torch.int32, device=device), page_lines)
        self._lent = lent
        self._parts = PartMemory.new(memory.ring, len(own.done))
        self.tasks = Tasks(counters, memory.ring, lent, self._parts)
        self._served = LateNumber(memory.served)
        self._num_before = 0  # tasks of earlier generations
        self._first = 0  # the number of the first of this one
        window.page_lines = page_lines

    @property
    def num_served(self) -> int:
        """Tasks, as of late."""
        return self._num_before + max(0, self._served.look() - self._first)

    def look(self) -> None:
        """Accept the sender's generation, if it is a new one: what was asked for before is forgotten."""
        generation = self._window.generation
        if generation == self._window.accepted:
            return
        self._drain()  # no task of before is served
        counters = self.tasks.counters
        num_asked, num_served = int(counters.asked), int(counters.served)
        self._num_before += num_served - self._first
        self._first = num_asked
        counters.refused.zero_()
        counters.arrived.zero_()
        self._parts.arrived.zero_()
        counters.done.fill_(num_asked)
        counters.served.fill_(num_asked)
        self._served = LateNumber(counters.served)
        self._drain()
        self._window.accept(generation)

    def lend(self, pages: Iterable[int]) -> None:
        """From the next launch on."""
        for page in pages:
            self._lent.is_lent[page] = 1

    def take_back(self, pages: Iterable[int]) -> None:
        """What is queued from now on comes behind the last use of these."""
        for page in pages:
            self._lent.is_lent[page] = 0

    def close(self) -> int:
        """Serve nothing any more; the sender loses what is under way. How many tasks there were."""
        self._window.accept(CLOSED)
        self._drain()
        num_served = self._num_before + int(self.tasks.counters.served) - self._first
        self.tasks.counters.refused.fill_(1)
        self.tasks.counters.served.fill_(_NO_MORE)
        self._drain()
        self._window.close()
        return num_served
