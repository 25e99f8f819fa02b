"""A task that fails is said, and ends its process: by itself in good order, or by force when that takes too long."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
import structlog

from shared.service.background.tasks import Supervised, TaskFailedError

PROCESS = """
import asyncio
from shared.service.service import run_process
from shared.service.background.tasks import Supervised

async def fail():
    raise ValueError("a defect")

async def main(config):
    left = asyncio.Event()
    tasks = Supervised(exit_s={exit_s})
    async with tasks.until_left(left.set):
        tasks.start("failing", fail())
        await ({wait})

run_process(main)
"""


async def fail() -> None:
    raise ValueError("a defect")


async def last() -> None:
    await asyncio.Event().wait()


async def test_a_failure_is_logged_with_its_traceback_and_told_once() -> None:
    told: list[str] = []
    tasks, failed = Supervised(), asyncio.Event()
    assert tasks.failed == ""

    def end() -> None:
        told.append(tasks.failed)
        failed.set()

    async def live() -> None:
        async with tasks.until_left(end):
            tasks.start("first", fail())
            tasks.start("second", fail())
            tasks.start("third", last())
            await failed.wait()

    with structlog.testing.capture_logs() as logs, pytest.raises(TaskFailedError, match="first has failed: ValueError"):
        await live()
    assert told == ["first has failed: ValueError"]
    assert [(log["task"], str(log["exc_info"])) for log in logs] == [("first", "a defect"), ("second", "a defect")]


async def test_who_leaves_without_a_failure_ends_its_tasks_in_silence() -> None:
    tasks = Supervised()
    with structlog.testing.capture_logs() as logs:
        async with tasks.until_left(lambda: pytest.fail("nothing has failed")):
            tasks.start("lasting", last())
            await asyncio.sleep(0)
    assert (tasks.failed, logs) == ("", [])


async def test_who_does_not_leave_in_time_is_ended() -> None:
    ended, statuses = threading.Event(), []

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    async def live() -> None:
        tasks = Supervised(exit_s=0.01, end=end)
        async with tasks.until_left(lambda: None):
            tasks.start("failing", fail())
            await asyncio.to_thread(ended.wait, 10)

    with pytest.raises(TaskFailedError):
        await live()
    assert statuses == [1]


@pytest.mark.parametrize("wait", ["left.wait()", "asyncio.Event().wait()"], ids=["in good order", "by force"])
def test_the_process_ends_with_status_1(wait: str) -> None:
    exit_s = 20 if wait == "left.wait()" else 0.05
    program = PROCESS.format(exit_s=exit_s, wait=wait)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1

    assert "background task failed, ending the process" in done.stdout
    assert "ValueError: a defect" in done.stdout + done.stderr
