"""Two devices that both models share, each model cut by tensor parallelism over both: the peer of weaving.

As MuxServe (ICML'24) does with models that decode: no turns are planned; what both have to do on a device at
one time goes at half its pace. What is generous to the peer: collectives and hosts of one model take nothing from the
other one.
"""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind
from services.simulator.weaving.arrivals import PoissonArrivals
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.decode_record import DecodeRecord
from services.simulator.weaving.operator_times import DecodeStep, OperatorTimes
from services.simulator.weaving.sender_node import MOST_WAITING, Link

_COLLECTIVES = frozenset({OperatorKind.ALL_REDUCE, OperatorKind.ALL_GATHER})


class ParallelModel:
    """One of them: a step is time of its own, then work on the devices."""

    def __init__(
        self,
        times: OperatorTimes,
        host_s: float,
        link: Link,
        books: DecodeBooks,
        arrivals: PoissonArrivals,
        *,
        is_full: bool = False,
    ) -> None:
        """``is_full``: a request always waits."""
        self.record, self.books = DecodeRecord(), books
        self._times, self._host_s, self._link, self._arrivals = times, host_s, link, arrivals
        self._is_full = is_full
        self._step: DecodeStep | None = None
        self._started_s = 0.0
        self.own_s = 0.0
        self.work_s = 0.0

    @property
    def is_computing(self) -> bool:
        """Whether it wants the devices now."""
        return self.own_s <= 0.0 and self._step is not None

    def begin(self, now: float) -> None:
        """Begin a step, if it has none."""
        if self._step is not None:
            return
        self.books.waiting.extend(self._arrivals.take(now))
        while self._is_full and len(self.books.waiting) < MOST_WAITING:
            self.books.waiting.append(self._arrivals.draw())
        self.record.admitted(self.books.admit(), now)
        step = self.books.next_step()
        if not step.num_rows:
            self.own_s = max(self._arrivals.next_s - now, 2 * _NOTHING_S)
            return
        self._step, self._started_s = step, now
        collectives_s, self.work_s = parts_s(self._times, self._link, step)
        self.own_s = self._host_s + collectives_s

    def end_if_done(self, now: float) -> None:
        """End the step under way, if nothing of it is left."""
        if self._step is not None and self.own_s <= 0.0 and self.work_s <= 0.0:
            self.record.stepped(self._step, self.books, self._started_s, now)
            self.record.ended(self.books.step(), now)
            self._step = None


def parts_s(times: OperatorTimes, link: Link, step: DecodeStep) -> tuple[float, float]:
    """Collectives of a step, and all else of it; in a ring of two each collective is two writes, or one."""
    collectives_s = work_s = 0.0
    for operator, duration_s in zip(times.operators, times.seconds(step), strict=True):
        if operator.kind in _COLLECTIVES:
            num_writes = 2 if operator.kind is OperatorKind.ALL_REDUCE else 1
            collectives_s += duration_s + num_writes * link.delay_s
        else:
            work_s += duration_s
    return collectives_s, work_s


def run(models: list[ParallelModel], start_s: float, until_s: float) -> float:
    """Let time pass; when it stopped."""
    now = start_s
    while now < until_s:
        for model in models:
            model.begin(now)
        computing = [model for model in models if model.is_computing]
        pace = 1 / max(1, len(computing))
        pass_s = min(model.work_s / pace if model in computing else model.own_s for model in models)
        now += pass_s
        for model in models:
            if model in computing:
                model.work_s = _less(model.work_s, pass_s * pace)
            else:
                model.own_s = _less(model.own_s, pass_s)
            model.end_if_done(now)
    return now


_NOTHING_S = 1e-9
"""What rounding may leave of a time."""


def _less(before_s: float, gone_s: float) -> float:
    left_s = before_s - gone_s
    return left_s if left_s > _NOTHING_S else 0.0
