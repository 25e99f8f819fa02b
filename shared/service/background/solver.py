"""Slow decisions outside a service's loop: one worker process, newest problem first, the answer goes to the inbox.

The worker is a plain child with two pipes (`solver_process`), not one of `multiprocessing`: those leave semaphores and
processes behind where the service is killed, and tell of it on stderr in the midst of a log of JSON.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress

import structlog
from prometheus_client import Counter, Histogram
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.bus.system_writes import SystemWriter, add
from shared.messages.codec import decode, encode
from shared.messages.nodes.placement import PlacementProblem, PlanSolver, Solved
from shared.service.background.solver_process import FAILURE, HEADER, MAX_FRAME_BYTES, PROBLEM, framed, name_of
from shared.service.background.tasks import cancel_all

SOLVE_S = Histogram(
    "treadle_solver_seconds",
    "Time from a placement problem to its answer",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
FAILURES = Counter("treadle_solver_failures_total", "Placement problems without an answer, by the reason", ["reason"])
_REASONS = (PROCESS_DIED, ANSWER_LOST, RAISED) = ("process_died", "answer_lost", "raised")
SOLVE_TIMEOUT_S = 60.0  # the largest problem that is asked takes some seconds; a process that hangs would have all wait

log = structlog.get_logger()


class WorkerDiedError(Exception):
    """The worker has ended; another one is started for the next problem."""


class SolveError(Exception):
    """A problem could not be solved; the text is the worker's traceback."""


class _Worker:
    """One life of the worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._problems, self._answers = process, process.stdin, process.stdout

    @classmethod
    async def start(cls, solve: PlanSolver) -> _Worker:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-m", "shared.service.background.solver_process", name_of(solve)]
        pipe = asyncio.subprocess.PIPE
        try:
            return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment))
        except OSError as error:
            raise WorkerDiedError(f"it has not started: {error}") from error

    async def solve(self, problem: PlacementProblem, timeout_s: float) -> Solved:
        """Its answer; `WorkerDiedError` where it ends before or hangs, `SolveError` where it could not."""
        try:
            async with asyncio.timeout(timeout_s):
                kind, data = await self._ask(framed(PROBLEM, encode(problem)))
        except TimeoutError as error:
            raise WorkerDiedError(f"no answer for {timeout_s:g} s: it hangs, and is ended") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WorkerDiedError(str(error)) from error
        if kind == FAILURE:
            raise SolveError(data.decode(errors="replace"))
        answer = decode(data)
        assert isinstance(answer, Solved)
        return answer

    async def _ask(self, question: bytes) -> tuple[int, bytes]:
        """Kind and bytes of the answer."""
        self._problems.write(question)
        await self._problems.drain()
        kind, num_bytes = HEADER.unpack(await self._answers.readexactly(HEADER.size))
        if num_bytes > MAX_FRAME_BYTES:
            raise WorkerDiedError(f"an answer of {num_bytes} bytes")
        return kind, await self._answers.readexactly(num_bytes)

    async def kill(self) -> None:
        """End it, whatever it is at."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._problems.close()
        await self._process.wait()


class Solver:
    """At most one problem runs and at most one waits: a newer problem replaces the waiting one, which is out of date.

    A lost answer (worker killed, Redis gone) is logged and not retried here: the core asks again in its own time.
    """

    def __init__(self, solve: PlanSolver, redis: Redis, inbox: str, *, timeout_s: float = SOLVE_TIMEOUT_S) -> None:
        """A worker that is at one problem for ``timeout_s`` is ended."""
        self._solve = solve
        self._timeout_s = timeout_s
        self._writer = SystemWriter(redis)
        self._inbox = inbox
        self._waiting: PlacementProblem | None = None
        self._task: asyncio.Task[None] | None = None
        self._worker: _Worker | None = None
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
        await self._end_worker()

    async def _work(self) -> None:
        while self._waiting is not None:
            problem, self._waiting = self._waiting, None
            started = time.monotonic()
            try:
                if self._worker is None:
                    self._worker = await _Worker.start(self._solve)
                answer = await self._worker.solve(problem, self._timeout_s)
                SOLVE_S.observe(time.monotonic() - started)
                await self._writer.write(add(self._inbox, answer))
            except WorkerDiedError as error:
                log.error("solver process died", version=problem.version, error=str(error))
                FAILURES.labels(PROCESS_DIED).inc()
                await self._end_worker()
            except (RedisError, OSError) as error:
                FAILURES.labels(ANSWER_LOST).inc()
                log.warning("solver answer lost", version=problem.version, error=str(error))
            except SolveError as error:  # it must not end the service: the core goes on with the plan it has
                FAILURES.labels(RAISED).inc()
                log.error("solver failed", version=problem.version, exception=str(error))

    async def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.kill()
