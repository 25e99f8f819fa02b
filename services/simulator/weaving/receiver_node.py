"""A node of a cold model that does a sender's attention behind its own operators (Weaver, ATC'25, §4.1).

Its host gives it a step at a time; between two steps the device waits for its host, and serves at once. In a step it
looks for a task where its program has polls, and at the end of the step, so each task waits for what runs before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from gpu_node.graph.program import OperatorKind
from services.simulator.weaving.arrivals import PoissonArrivals
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.decode_record import DecodeRecord
from services.simulator.weaving.operator_times import OperatorTimes


class ReceiverNode:
    """In virtual time: what it does is settled up to ``now``."""

    def __init__(
        self, times: Callable[[], OperatorTimes], host_s: float, arrivals: PoissonArrivals, books: DecodeBooks
    ) -> None:
        """``times``: of the program of the next step, which may be split anew."""
        self.now = 0.0
        self.served_s = 0.0
        self.record = DecodeRecord()
        self.books = books
        self._times, self._host_s, self._arrivals = times, host_s, arrivals
        self._step_started_s = 0.0
        self._ready_s = 0.0  # when its host has the next step ready
        self._looks: list[float] = []  # work of the step under way after which it looks; empty: there is none
        self._done_s = 0.0

    def serve(self, arrival_s: float, service_s: float) -> float:
        """When a task that comes then begins; it takes ``service_s``. Tasks come one after another."""
        self.advance(arrival_s)
        start_s = max(arrival_s, self.now)
        if self._looks:
            look_s = self._looks[bisect_left(self._looks, self._done_s)]
            start_s += look_s - self._done_s
            self._done_s = look_s
            if look_s == self._looks[-1]:
                self._end_step(start_s)
        self.now = start_s + service_s
        self.served_s += service_s
        return start_s

    def advance(self, until_s: float) -> None:
        """Settle what it does until then, if it is sent nothing."""
        while self.now < until_s:
            if self._looks:
                left_s = self._looks[-1] - self._done_s
                if self.now + left_s > until_s:
                    self._done_s += until_s - self.now
                    self.now = until_s
                    return
                self._end_step(self.now + left_s)
            elif not self._begin_step(until_s):
                self.now = until_s

    def _begin_step(self, until_s: float) -> bool:
        """At the first time from now on that a step can begin, if that is before ``until_s``."""
        begin_s = max(self.now, self._ready_s)
        if not self.books.num_running and not self.books.waiting:
            begin_s = max(begin_s, self._arrivals.next_s)
        if begin_s >= until_s:
            return False
        self.books.waiting.extend(self._arrivals.take(begin_s))
        self.record.admitted(self.books.admit(), begin_s)
        step = self.books.next_step()
        if not step.num_rows:
            self.now = begin_s  # what came needs no step
            return True
        times = self._times()
        ends_s = times.ends_s(step)
        self._looks = [ends_s[place] for place in times.places(OperatorKind.POLL)]
        if not self._looks or self._looks[-1] < ends_s[-1]:
            self._looks.append(ends_s[-1])
        self._done_s = 0.0
        self._step_started_s = self.now = begin_s
        return True

    def _end_step(self, now: float) -> None:
        self._looks = []
        self.now = now
        self._ready_s = now + self._host_s
        shape = self.books.shape
        self.record.stepped(shape, self.books, self._step_started_s, self._ready_s)
        self.record.ended(self.books.step(), now)
