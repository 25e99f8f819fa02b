"""Background tasks: ended for certain, and never missed in silence."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

CANCEL_AGAIN_S = 0.05
EXIT_S = 20.0  # a process that has lost a task ends in good order within this time, or at once after it

log = structlog.get_logger()


class TaskFailedError(Exception):
    """A task that its process cannot do without has failed, and the log says why: the process ends with status 1."""


class Supervised:
    """Tasks that a process cannot do without. Where one fails, the process says so, cleans up and ends.

    Its supervisor (systemd, Kubernetes, an operator) starts it again, which puts right what cannot be put right here.
    """

    def __init__(self, exit_s: float = EXIT_S, end: Callable[[int], object] = os._exit) -> None:
        """``end`` ends the process where it has not ended by itself ``exit_s`` after the failure."""
        self._tasks: list[asyncio.Task[None]] = []
        self._on_failure: Callable[[], None] | None = None
        self._exit = threading.Timer(exit_s, end, [1])  # the loop may be what hangs
        self._exit.daemon = True
        self.failed = ""
        """What has failed, or ``""``."""

    @asynccontextmanager
    async def until_left(self, on_failure: Callable[[], None]) -> AsyncIterator[None]:
        """Inside, a failure calls ``on_failure``, which has the process leave; then `TaskFailedError` is raised."""
        self._on_failure = on_failure
        try:
            yield
        finally:
            await self.cancel()
            self._exit.cancel()
        if self.failed:
            raise TaskFailedError(self.failed)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task; ``name`` says what it does."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    async def cancel(self) -> None:
        """End all of them."""
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("background task failed, ending the process", task=task.get_name(), exc_info=error)
        if not self.failed:
            self.failed = f"{task.get_name()} has failed: {type(error).__name__}"
            self._exit.start()
            assert self._on_failure is not None, "tasks are started inside of until_left"
            self._on_failure()


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel until it takes, and wait for the end; what the tasks raised is dropped.

    One `cancel` is not enough: a cancellation that meets redis-py in a blocking read is sometimes lost there (seen with
    8.1 on Python 3.11, about one in fifteen), and a plain cancel-and-gather would then wait for ever.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not warn about it
