"""Slow decisions outside a service's loop: one worker process, newest problem first, the answer goes to the inbox."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import structlog
from prometheus_client import Counter, Histogram
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.codec import decode, encode
from shared.placement import PlacementProblem, Plan, Solved
from shared.system_writes import SystemWriter, add
from shared.tasks import cancel_all

SOLVE_S = Histogram(
    "treadle_solver_seconds",
    "Time from a placement problem to its answer",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
FAILURES = Counter("treadle_solver_failures_total", "Placement problems without an answer, by the reason", ["reason"])
_REASONS = (PROCESS_DIED, ANSWER_LOST, RAISED) = ("process_died", "answer_lost", "raised")

QUIET_TRACKER = "ignore::UserWarning:multiprocessing.resource_tracker"
"""Where a service is killed, the tracker of its semaphores puts that right, and would say so on stderr, amid JSON."""

log = structlog.get_logger()


def _solve_bytes(solve: Callable[[PlacementProblem], Plan], problem: bytes) -> bytes:
    """Runs in the worker; only bytes and a function's name cross the border."""
    message = decode(problem)
    assert isinstance(message, PlacementProblem)
    return encode(Solved(plan=solve(message)))


def _pool() -> ProcessPoolExecutor:
    """One worker, spawned: a fork would share the sockets of the running loop."""
    if QUIET_TRACKER not in sys.warnoptions:
        sys.warnoptions.append(QUIET_TRACKER)  # which processes that are started from here inherit
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_service)


def _end_with_service() -> None:
    """Runs in the worker, which would wait for problems for ever once nobody is left to ask."""
    service = multiprocessing.parent_process()
    assert service is not None

    def watch() -> None:
        service.join()
        os._exit(0)  # the work goes on in another thread

    threading.Thread(target=watch, daemon=True).start()


class Solver:
    """At most one problem runs and at most one waits: a newer problem replaces the waiting one, which is out of date.

    A lost answer (worker killed, Redis gone) is logged and not retried here: the core asks again in its own time.
    """

    def __init__(self, solve: Callable[[PlacementProblem], Plan], redis: Redis, inbox: str) -> None:
        self._solve = solve
        self._writer = SystemWriter(redis)
        self._inbox = inbox
        self._waiting: PlacementProblem | None = None
        self._task: asyncio.Task[None] | None = None
        self._pool: ProcessPoolExecutor | None = None
        for reason in _REASONS:
            FAILURES.labels(reason)  # is there from the start, so that the first failure is an increase

    def submit(self, problem: PlacementProblem) -> None:
        """Solve a problem in the background."""
        self._waiting = problem
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop the worker; what it was solving is dropped."""
        if self._task is not None:
            await cancel_all([self._task])
        if self._pool is not None:
            # what Python 3.14 has as kill_workers(): a shutdown alone keeps this process until the problem is solved
            for worker in self._pool._processes.values():
                worker.kill()
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)  # with it go its semaphores

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting is not None:
            problem, self._waiting = self._waiting, None
            started = time.monotonic()
            try:
                if self._pool is None:
                    self._pool = _pool()
                answer = await loop.run_in_executor(self._pool, _solve_bytes, self._solve, encode(problem))
                SOLVE_S.observe(time.monotonic() - started)
                await self._writer.write(add(self._inbox, answer))
            except BrokenProcessPool:
                log.error("solver process died", version=problem.version)
                FAILURES.labels(PROCESS_DIED).inc()
                self._pool = None
            except (RedisError, OSError) as error:
                FAILURES.labels(ANSWER_LOST).inc()
                log.warning("solver answer lost", version=problem.version, error=str(error))
            except Exception:  # a failed solve must not end the service: the core goes on with the plan it has
                FAILURES.labels(RAISED).inc()
                log.exception("solver failed", version=problem.version)
