"""Which worker processes a gateway starts, stops and kills. Time comes in as arguments: no I/O, no clock, no chance.

A *worker* is a place, 0 to N - 1; a *life* is one process in it. While a worker is replaced, it has two lives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RESTART_S = 0.2  # after a first end
MAX_RESTART_S = 10.0  # what cannot run is not tried more often
STEADY_S = 60.0  # a life this long after it was ready is no part of a series of failures
START_S = 300.0  # a cold disk takes minutes to give up a vocabulary; what takes longer hangs
SILENT_S = 30.0  # a process that was ready and answers nothing at all for this long is stopped, or hangs in the kernel
KILL_AFTER_S = 1.0  # beyond the time that it has for its streams; `treadle down` waits for 20 s in all


@dataclass(frozen=True)
class StartWorker:
    """Begin a life."""

    worker: int
    life: int


@dataclass(frozen=True)
class Stop:
    """Ask a process to end: it lets its streams end first."""

    life: int


@dataclass(frozen=True)
class Kill:
    """End a process at once."""

    life: int
    reason: str


PoolAction = StartWorker | Stop | Kill


@dataclass(kw_only=True)
class Life:
    """One process."""

    worker: int
    started_s: float
    heard_s: float
    """When it answered last."""
    ready_s: float = math.inf
    """Since when it has been ready, the first time."""
    is_ready: bool = False
    hangs: str = ""
    is_leaving: bool = False
    """It has been asked to end."""
    kill_at_s: float = math.inf
    is_killed: bool = False

    @property
    def is_current(self) -> bool:
        """Whether it is to go on."""
        return not self.is_leaving and not self.is_killed


class WorkerPool:
    """N workers that shall always run. Tell it what happens, then do what `due` says."""

    def __init__(self, num_workers: int, stop_s: float) -> None:
        """``stop_s``: what a process may take to end when it is asked to."""
        self.num_workers = num_workers
        self.lives: dict[int, Life] = {}
        """Processes that have not ended, by number."""
        self.num_restarts = [0] * num_workers
        """Lives that ended unasked, by worker."""
        self.failure = ""
        """Why there is no point in going on: the first worker cannot start."""
        self.abandoned = ""
        """Why the last replacement was given up; empty when it was not."""
        self._stop_s = stop_s
        self._num_lives = 0
        self._num_failures = [0] * num_workers
        self._start_at_s = [0.0] * num_workers
        self._was_ready = False
        self._is_stopping = False
        self._to_replace: list[int] = []
        """Lives whose place others shall take, one after the other."""
        self._successor: int | None = None

    @property
    def num_ready(self) -> int:
        """Workers with a process that serves."""
        return len({life.worker for life in self.lives.values() if life.is_ready and life.is_current})

    @property
    def is_over(self) -> bool:
        """Whether all have ended as they were asked to."""
        return self._is_stopping and not self.lives

    def not_ready(self) -> str:
        """What keeps the gateway from serving, or ``""``."""
        if self._is_stopping:
            return "stopping"
        return "" if self.num_ready else f"none of {self.num_workers} workers is ready"

    # --- what happens -------------------------------------------------------------------------------------------------

    def heard(self, life: int, now: float, *, is_ready: bool, hangs: str) -> None:
        """A process has said how it is."""
        found = self.lives.get(life)
        if found is None:
            return  # it has ended since it was asked
        found.heard_s, found.is_ready, found.hangs = now, is_ready, hangs
        if is_ready:
            self._was_ready = True
            found.ready_s = min(found.ready_s, now)

    def ended(self, life: int, now: float, how: str) -> None:
        """A process is no more; ``how`` is for people."""
        found = self.lives.pop(life)
        if found.is_leaving or self._is_stopping:
            return
        if life == self._successor and self.lives[self._to_replace[0]].is_current:
            self._abandon(f"the new process of worker {found.worker} {how} before the old one had left")
            return
        if not self._was_ready and not found.is_killed:
            self.failure = f"worker {found.worker} {how} before any was ready; what it has logged says why"
            self.stop()
            return
        self.num_restarts[found.worker] += 1
        self._delay(found, now)

    def replace_all(self) -> None:
        """Each process that runs now shall be followed by a new one, one after the other."""
        self.abandoned = ""
        self._to_replace = sorted(number for number, life in self.lives.items() if life.is_current)
        self._successor = None

    def stop(self) -> None:
        """All shall end."""
        self._is_stopping = True
        self._to_replace, self._successor = [], None

    # --- what is to be done -------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[PoolAction]:
        """To be done now; it counts as done."""
        actions: list[PoolAction] = self._kills(now)
        if self._is_stopping:
            return actions + [self._leave(number, now) for number, life in self.lives.items() if life.is_current]
        return actions + self._replacement(now) + self._starts(now)

    def _starts(self, now: float) -> list[PoolAction]:
        """The first one alone until it is ready: what an operator must put right is told once, not N times."""
        staffed = {life.worker for life in self.lives.values() if not life.is_leaving}
        workers = range(self.num_workers) if self._was_ready else range(1)
        return [
            self._begin(worker, now) for worker in workers if worker not in staffed and now >= self._start_at_s[worker]
        ]

    def _replacement(self, now: float) -> list[PoolAction]:
        """A new process first; the old one is asked to end once the new one is ready; the next when it has ended."""
        while self._to_replace and self._to_replace[0] not in self.lives:
            self._to_replace.pop(0)  # it has ended, for whatever reason
            self._successor = None
        if not self._to_replace:
            return []
        old = self._to_replace[0]
        if not self.lives[old].is_current:
            return []
        if self._successor is None:
            start = self._begin(self.lives[old].worker, now)
            self._successor = start.life
            return [start]
        return [self._leave(old, now)] if self.lives[self._successor].is_ready else []

    def _abandon(self, why: str) -> None:
        self.abandoned = f"{why}: the old ones go on"
        self._to_replace, self._successor = [], None

    def _kills(self, now: float) -> list[PoolAction]:
        kills: list[PoolAction] = []
        for number, life in self.lives.items():
            if not life.is_killed and (reason := self._reason_to_kill(life, now)):
                life.is_killed, life.is_ready = True, False
                kills.append(Kill(number, reason))
        return kills

    @staticmethod
    def _reason_to_kill(life: Life, now: float) -> str:
        if life.is_leaving:
            return "it was asked to end and has not" if now >= life.kill_at_s else ""
        if life.ready_s == math.inf:
            return f"it was not ready after {START_S:g} s" if now - life.started_s > START_S else ""
        return life.hangs or (f"it has not answered for {SILENT_S:g} s" if now - life.heard_s > SILENT_S else "")

    def _begin(self, worker: int, now: float) -> StartWorker:
        self._num_lives += 1
        self.lives[self._num_lives] = Life(worker=worker, started_s=now, heard_s=now)
        return StartWorker(worker, self._num_lives)

    def _leave(self, number: int, now: float) -> Stop:
        life = self.lives[number]
        life.is_leaving, life.is_ready, life.kill_at_s = True, False, now + self._stop_s + KILL_AFTER_S
        return Stop(number)

    def _delay(self, life: Life, now: float) -> None:
        if now - life.ready_s >= STEADY_S:
            self._num_failures[life.worker] = 0
        delay_s = min(RESTART_S * 2 ** self._num_failures[life.worker], MAX_RESTART_S)
        self._start_at_s[life.worker] = now + delay_s
        if delay_s < MAX_RESTART_S:
            self._num_failures[life.worker] += 1
