"""Attention for another device (Weaver, ATC'25, §4.1), of which this one plays both: what polls cost, and a round trip.

Rows of Llama 3 8B. A round trip is a send, the poll that answers it and the gather, one behind the other: what they
take beyond the attention itself is what asking costs, without a link and without waiting for a poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from laid_out import HEAD_DIM, NUM_KV_HEADS, SHAPE, LaidOut
from line import Line
from speeds import median_s

from gpu_node.kernels.triton.attention.gather import gather
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.attention.task_ring import PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.launch import num_processors

CASES = ((1, 1024), (16, 1024), (64, 1024), (64, 4096))
"""Rows, and the tokens that each attends to."""


def measure_others(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """A poll that finds nothing; then round trips beside the attention."""
    yield Line("a poll that finds nothing", 1e6 * median_s(_Asked(*CASES[0], device).look, device), "us")
    for num_rows, context in CASES:
        asked, what = _Asked(num_rows, context, device), f"{num_rows} x {context} tokens"
        yield Line(f"attention here, {what}", 1e6 * median_s(asked.rows.attend, device), "us")
        asked_s = median_s(asked.ask, device)
        if asked.asks.is_lost:
            raise RuntimeError(f"a poll has not answered: {what}")
        yield Line(f"asked for, {what}", 1e6 * asked_s, "us")


class _Asked:
    """Rows whose contexts lie in an arena, and a ring by which they can be asked for."""

    def __init__(self, num_rows: int, context: int, device: torch.device) -> None:
        self.rows = rows = LaidOut(num_rows, context - 1, 1, device)
        self.k, self.v = torch.randn(2, num_rows, NUM_KV_HEADS * HEAD_DIM, device=device).bfloat16()
        self.counters = PollCounters.new(num_processors(device), 2, device)
        self.ring = TaskRing.new(SHAPE, 2, num_rows, rows.blocks_each, rows.q.shape[1], rows.q)
        self.asks = RemoteRing.new(self.counters, self.ring, rows.places)
        self.remote = RemoteRows(rows.batch.positions, rows.batch.first_blocks, rows.batch.block_lines)

    def look(self) -> None:
        """A poll."""
        poll(Tasks(self.counters, self.ring), self.rows.cache.numbers)

    def ask(self) -> None:
        """A round trip."""
        send(self.asks, self.rows.q, self.k, self.v, self.rows.cache, self.remote)
        self.look()
        gather(self.asks, self.rows.out, None, self.rows.cache.numbers)
