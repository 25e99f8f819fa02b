"""Attention for another device (Weaver, ATC'25, §4.1), of which this one plays both: what polls cost, and a round trip.

Rows of Llama 3 8B. A round trip is a send, the poll that answers it and the gather, one behind the other: what they
take beyond the attention itself is what asking costs, without a link and without waiting for a poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from line import Line
from speeds import BLOCK_SIZE, HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, median_s, tables

from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention.attention import paged_attention
from gpu_node.kernels.triton.attention.poll import PollCounters, TaskRing, poll
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.attention.remote import RemoteRing, RemoteRows, gather, send
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places, device_batch
from gpu_node.kernels.triton.launch import num_processors

CASES = ((1, 1024), (16, 1024), (64, 1024), (64, 4096))
"""Rows, and the tokens that each attends to."""


def measure_others(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """A poll that finds nothing; then round trips beside the attention."""
    yield Line("a poll that finds nothing", 1e6 * median_s(_Asked(*CASES[0], device).look, device), "us")
    for num_rows, context in CASES:
        asked, what = _Asked(num_rows, context, device), f"{num_rows} x {context} tokens"
        yield Line(f"attention here, {what}", 1e6 * median_s(asked.attend, device), "us")
        asked_s = median_s(asked.ask, device)
        if asked.asks.is_lost:
            raise RuntimeError(f"a poll has not answered: {what}")
        yield Line(f"asked for, {what}", 1e6 * asked_s, "us")


class _Asked:
    """Rows whose contexts lie in an arena, and a ring by which they can be asked for."""

    def __init__(self, num_rows: int, context: int, device: torch.device) -> None:
        shape = CacheShape(1, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)
        lines = shape.block_lines(2)
        sequences = [PagedSequence(context - 1, 1, table) for table in tables(num_rows, context)]
        num_blocks = sum(len(sequence.block_table) for sequence in sequences)
        places = Places(num_blocks * lines, lines)
        self.cache = LayerCache(torch.randn(num_blocks * lines * 32, device=device).bfloat16(), shape, 0)
        together = rows_together(NUM_HEADS // NUM_KV_HEADS)
        self.batch = device_batch(sequences, BLOCK_SIZE, places, device, rows_together=together)
        self.q = torch.randn(num_rows, NUM_HEADS * HEAD_DIM, device=device).bfloat16()
        self.k, self.v = torch.randn(2, num_rows, NUM_KV_HEADS * HEAD_DIM, device=device).bfloat16()
        self.out = torch.empty_like(self.q)
        self.counters = PollCounters.new(num_processors(device), 2, device)
        self.ring = TaskRing.new(shape, 2, num_rows, num_blocks // num_rows, self.q.shape[1], self.q)
        self.asks = RemoteRing.new(self.counters, self.ring, places)
        self.rows = RemoteRows(self.batch.positions, self.batch.first_blocks, self.batch.block_lines)

    def look(self) -> None:
        """A poll."""
        poll(self.counters, self.ring, self.cache.numbers)

    def attend(self) -> None:
        """Without asking."""
        paged_attention(self.q, self.cache, self.batch, self.out)

    def ask(self) -> None:
        """A round trip."""
        send(self.asks, self.q, self.k, self.v, self.cache, self.rows)
        self.look()
        gather(self.asks, self.out, None, self.cache.numbers)
