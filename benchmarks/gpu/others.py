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
from gpu_node.kernels.triton.attention.poll import num_instances, poll
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.attention.task_ring import LentLines, PartMemory, PollCounters, TaskRing, Tasks

CASES = ((1, 1024), (16, 1024), (64, 1024), (64, 4096))
"""Rows, and the tokens that each attends to."""


def measure_others(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """A poll that finds nothing; then round trips beside the attention."""
    yield Line("a poll that finds nothing", 1e6 * median_s(_Asked(*CASES[0], device).look, device), "us")
    for num_rows, context in CASES:
        asked, what = _Asked(num_rows, context, device), f"{num_rows} x {context} tokens"
        yield Line(f"attention here, {what}", 1e6 * median_s(asked.rows.attend, device), "us")
        checked = _Asked(num_rows, context, device, is_checked=True)
        ways = {"": asked.ask, ", what is lent checked": checked.ask, ", waited for meanwhile": asked.wait}
        for way, run in ways.items():
            asked_s = median_s(run, device)
            if asked.asks.is_lost or checked.asks.is_lost:
                raise RuntimeError(f"a poll has not answered: {what}{way}")
            yield Line(f"asked for, {what}{way}", 1e6 * asked_s, "us")


class _Asked:
    """Rows whose contexts lie in an arena, and a ring by which they can be asked for."""

    def __init__(self, num_rows: int, context: int, device: torch.device, *, is_checked: bool = False) -> None:
        self.rows = rows = LaidOut(num_rows, context - 1, 1, device)
        self.k, self.v = torch.randn(2, num_rows, NUM_KV_HEADS * HEAD_DIM, device=device).bfloat16()
        ring = TaskRing.new(SHAPE, 2, num_rows, rows.blocks_each, rows.q.shape[1], rows.q)
        counters = PollCounters.new(num_instances(ring), 2, device)
        page = torch.ones(1, dtype=torch.int32, device=device)
        lent = LentLines(page, rows.places.page_lines) if is_checked else None
        self.tasks = Tasks(counters, ring, lent, PartMemory.new(ring, num_instances(ring)))
        self.asks = RemoteRing.new(counters, ring, rows.places)
        self.remote = RemoteRows(rows.batch.positions, rows.batch.first_blocks, rows.batch.block_lines)
        self._receiver: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def look(self) -> None:
        """A poll."""
        poll(self.tasks, self.rows.cache.numbers)

    def ask(self) -> None:
        """A round trip, one launch behind the other."""
        self._send()
        self.look()
        self._gather()

    def wait(self) -> None:
        """A round trip, with the gather waiting while the poll runs."""
        self._send()
        self._receiver.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._receiver):
            self.look()
        self._gather()
        torch.cuda.current_stream().wait_stream(self._receiver)

    def _send(self) -> None:
        send(self.asks, self.rows.q, self.k, self.v, self.rows.cache, self.remote)

    def _gather(self) -> None:
        gather(self.asks, self.rows.out, None, self.rows.cache.numbers)
