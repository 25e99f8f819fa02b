"""A node of a hot model that decodes, with attention done by a receiver for some of its sequences, or alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_node.graph.program import OperatorKind
from services.simulator.weaving.arrivals import PoissonArrivals
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.decode_record import DecodeRecord
from services.simulator.weaving.operator_times import DecodeStep, OperatorTimes
from services.simulator.weaving.receiver_node import ReceiverNode


@dataclass(slots=True)
class Waits:
    """Of the tasks of a sender: means are sums over ``num``."""

    num: int = 0
    blocked_s: float = 0.0
    """From the task's arrival until it is begun."""
    late_s: float = 0.0
    """What the sender waited."""


@dataclass(frozen=True, slots=True)
class Link:
    """Between two devices."""

    delay_s: float
    """From a write until the other side has seen it."""
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class RemoteAttention:
    """How tasks are made and served."""

    receiver: ReceiverNode
    link: Link
    service_s: Callable[[DecodeStep], float]
    """N: of a step's remote sequences, one layer."""
    answer_bytes: float
    """Of one row."""


class SenderNode:
    """In virtual time, a step at a time."""

    def __init__(
        self,
        local: OperatorTimes,
        offloaded: OperatorTimes,
        host_s: float,
        books: DecodeBooks,
        arrivals: PoissonArrivals,
        remote: RemoteAttention | None = None,
    ) -> None:
        """``local`` and ``offloaded``: of its program without remote sequences and with them."""
        self.now = 0.0
        self.record, self.waits = DecodeRecord(), Waits()
        self.books = books
        self._local, self._offloaded, self._host_s = local, offloaded, host_s
        self._arrivals, self._remote = arrivals, remote

    def run(self, until_s: float, *, is_full: bool = False) -> None:
        """Steps that begin before then. ``is_full``: a request always waits, so its rate is the most that it can do."""
        while self.now < until_s:
            self.books.waiting.extend(self._arrivals.take(self.now))
            while is_full and len(self.books.waiting) < MOST_WAITING:
                self.books.waiting.append(self._arrivals.draw())
            self.record.admitted(self.books.admit(), self.now)
            step = self.books.next_step()
            if step.num_rows:
                self._step(step)
            else:
                self.now = max(self.now, self._arrivals.next_s)

    def _step(self, step: DecodeStep) -> None:
        start_s = self.now
        self.now += self._host_s
        if step.num_remote and self._remote:
            self._compute_with(self._remote, step)
        else:
            self.now += self._local.total_s(step)
        self.record.stepped(step, self.books, start_s, self.now)
        self.record.ended(self.books.step(), self.now)

    def _compute_with(self, remote: RemoteAttention, step: DecodeStep) -> None:
        service_s = remote.service_s(step)
        away_s = remote.link.delay_s + step.num_remote * remote.answer_bytes / remote.link.bytes_per_s
        ends_s = self._offloaded.ends_s(step)
        sends, gathers = (self._offloaded.places(kind) for kind in (OperatorKind.SEND, OperatorKind.GATHER))
        begun_s = self.now  # of the program, moved by what was waited for
        for send, gather in zip(sends, gathers, strict=True):
            arrival_s = begun_s + ends_s[send] + remote.link.delay_s
            served_s = remote.receiver.serve(arrival_s, service_s)
            late_s = max(0.0, served_s + service_s + away_s - (begun_s + ends_s[gather - 1]))
            begun_s += late_s
            self.waits.num += 1
            self.waits.blocked_s += served_s - arrival_s
            self.waits.late_s += late_s
        self.now = begun_s + ends_s[-1]


MOST_WAITING = 8
"""Of those that always wait: more would only be drawn earlier."""
