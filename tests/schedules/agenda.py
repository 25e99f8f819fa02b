"""Virtual time: what is due when. One heap is the only clock, and the only order, of a schedule."""

from __future__ import annotations

import heapq
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

Work = Coroutine["Wish", None, None]


class Signal:
    """Wakes the tasks that wait for it."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def wait(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called with the next `notify`."""
        self._waiting.append(wake)

    def notify(self) -> None:
        """Something has come."""
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()


Wish = tuple[float | None, Signal | None]
"""What a task waits for: so many seconds, a signal, or whichever comes first."""


@types.coroutine
def _suspend(wish: Wish) -> Generator[Wish, None, None]:
    yield wish


async def sleep(seconds: float) -> None:
    """Go on after so long."""
    await _suspend((seconds, None))


async def wait(signal: Signal, timeout_s: float | None = None) -> None:
    """Go on when there is news, or after ``timeout_s``."""
    await _suspend((timeout_s, signal))


class Agenda:
    """Actions of one time are taken in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_events = 0
        self.unbegun: list[Work] = []
        """Tasks of processes that were stopped when they should have begun."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._num_asked = 0

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Do this then, or at once if that is over."""
        self._num_asked += 1
        heapq.heappush(self._heap, (time_s if time_s > self.now else self.now, self._num_asked, action))

    def run_until(self, time_s: float) -> None:
        """Do all that is due by then, and move the clock there."""
        heap = self._heap
        while heap and heap[0][0] <= time_s:
            self.now, _, action = heapq.heappop(heap)
            self.num_events += 1
            action()
        self.now = time_s

    def close(self) -> None:
        """Nothing more is done; Python complains of coroutines that never began."""
        for work in self.unbegun:
            work.close()


class Killed(BaseException):  # as `KeyboardInterrupt`: no handler of errors may catch it
    """The process that did this is dead."""


class Host:
    """A process as the agenda sees it: tasks that die with their life, and stand still while it is stopped."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.life = 0
        self.frozen_until_s = 0.0

    def spawn(self, work: Work) -> None:
        """Begin a task of this life."""
        Task(self, work).go_on(0)

    def end_life(self) -> None:
        """None of its tasks goes on."""
        self.life += 1


class Task:
    """One coroutine of one life of a process."""

    __slots__ = ("_host", "_life", "_turn", "_work")

    def __init__(self, host: Host, work: Work) -> None:
        self._host = host
        self._life = host.life
        self._work: Coroutine[Any, None, None] = work
        self._turn = 0

    def go_on(self, turn: int) -> None:
        """Until it has to wait; not if it has gone on since this was asked for."""
        host = self._host
        if turn != self._turn:
            return
        if host.life != self._life:
            self._work.close()
            return
        if host.frozen_until_s > host.agenda.now:
            if turn == 0:
                host.agenda.unbegun.append(self._work)
            host.agenda.at(host.frozen_until_s, partial(self.go_on, turn))
            return
        self._turn += 1
        try:
            seconds, signal = self._work.send(None)
        except (StopIteration, Killed):
            return
        go_on = partial(self.go_on, self._turn)
        if seconds is not None:
            host.agenda.at(host.agenda.now + seconds, go_on)
        if signal is not None:
            signal.wait(lambda: host.agenda.at(host.agenda.now, go_on))
