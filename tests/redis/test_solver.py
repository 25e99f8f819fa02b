"""Slow work outside the loop: answers come back through the inbox, and a dead worker is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from shared.bus.bus import connect
from shared.messages.codec import decode_entry
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import PlacementProblem, Plan, Solved
from shared.messages.requests.requests import Cancel
from shared.service.background.solver import Solver
from shared.service.core import Effect, Send, Solve
from tests.redis.counting import INBOX, OUT, said, say
from tests.redis.life import life
from tests.redis.waiting import PATIENCE_S, until

DEADLY, FAILING, SLOW = 666, 500, 3600
SLOW_S = 30.0
START_S = 8.0  # a worker has begun and answered by then, on a busy machine too


def num_failures(reason: str) -> float:
    return REGISTRY.get_sample_value("treadle_solver_failures_total", {"reason": reason}) or 0.0


def num_solved() -> float:
    return REGISTRY.get_sample_value("treadle_solver_seconds_count") or 0.0


def solve(problem: PlacementProblem) -> Plan:
    """Runs in the worker; the plan says which process that was."""
    if problem.version == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    if problem.version == FAILING:
        raise RuntimeError("no plan")
    if problem.version == SLOW:
        Path(problem.nodes[0].node).touch()
        time.sleep(SLOW_S)
    return Plan(version=problem.version, queues={}, num_swaps=os.getpid())


def problem(version: int) -> PlacementProblem:
    return PlacementProblem(version=version, now_s=0.0, nodes=[], groups=[])


async def plans(redis: Redis) -> list[Plan]:
    entries: Any = await redis.xrange(INBOX)
    messages = [decode_entry(fields) for _, fields in entries]
    return [message.plan for message in messages if isinstance(message, Solved)]


async def plan_of(redis: Redis, version: int) -> Plan:
    async def has_come() -> bool:
        return any(plan.version == version for plan in await plans(redis))

    await until(has_come)
    return next(plan for plan in await plans(redis) if plan.version == version)


async def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
async def solver(redis: Redis) -> AsyncIterator[Solver]:
    solver = Solver(solve, redis, INBOX)
    yield solver
    await solver.close()


class AskingCore:
    """Hands every word to the solver, as a version, and says which plans came back."""

    wake_at: float | None = None

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        match message:
            case Cancel(request_id=version):
                return [Solve(problem(int(version)))]
            case Solved(plan=plan):
                return [Send(OUT, Cancel(request_id=f"plan {plan.version}"))]
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass

    def describe(self) -> dict[str, object]:
        return {}


async def test_a_solve_effect_comes_back_as_a_message(redis: Redis, redis_url: str) -> None:
    async with life(redis_url, AskingCore, make_solver=lambda client: Solver(solve, client, INBOX)) as one:
        await say(redis, "7")

        async def is_answered() -> bool:
            return bool(await redis.exists(OUT))

        await until(is_answered)
        await one.is_through()
    assert await said(redis) == ["plan 7"]
    async with life(redis_url, AskingCore) as replayed:  # no solver: a replay solves nothing again
        await replayed.leads()
    assert await said(redis) == ["plan 7"]


async def test_problems_are_solved_by_another_process_that_stays(redis: Redis, solver: Solver) -> None:
    solver.submit(problem(1))
    first = await plan_of(redis, 1)
    solver.submit(problem(2))
    second = await plan_of(redis, 2)
    assert first.num_swaps == second.num_swaps != os.getpid()


async def test_a_newer_problem_replaces_the_one_that_waits(redis: Redis, solver: Solver) -> None:
    for version in range(1, 6):
        solver.submit(problem(version))
    await plan_of(redis, 5)
    assert [plan.version for plan in await plans(redis)] == [5]


async def test_a_worker_that_dies_at_work_is_replaced(redis: Redis, solver: Solver) -> None:
    before = num_failures("process_died")
    solver.submit(problem(1))
    worker = (await plan_of(redis, 1)).num_swaps
    solver.submit(problem(DEADLY))
    await until(lambda: is_gone(worker))
    solver.submit(problem(2))
    assert (await plan_of(redis, 2)).num_swaps != worker
    assert [plan.version for plan in await plans(redis)] == [1, 2]
    assert num_failures("process_died") == before + 1


async def test_a_worker_that_dies_while_idle_is_replaced(redis: Redis, solver: Solver) -> None:
    solver.submit(problem(1))
    worker = (await plan_of(redis, 1)).num_swaps
    os.kill(worker, signal.SIGKILL)
    await until(lambda: is_gone(worker))

    async def is_solved() -> bool:
        solver.submit(problem(2))  # a core asks again when no answer comes
        return len(await plans(redis)) > 1

    await until(is_solved)


async def test_a_failing_problem_does_not_end_the_solver(redis: Redis, solver: Solver) -> None:
    failed, solved = num_failures("raised"), num_solved()
    solver.submit(problem(FAILING))
    await asyncio.sleep(0)
    solver.submit(problem(2))
    await plan_of(redis, 2)
    assert [plan.version for plan in await plans(redis)] == [2]
    assert (num_failures("raised"), num_solved()) == (failed + 1, solved + 1)


async def test_closing_ends_the_worker_in_the_midst_of_a_problem(redis: Redis, tmp_path: Path) -> None:
    """A service that is told to stop must not hang on a plan that nobody will read."""
    solver = Solver(solve, redis, INBOX)
    solver.submit(problem(1))
    worker = (await plan_of(redis, 1)).num_swaps
    started = tmp_path / "started"
    slow = NodeState(str(started), "")
    solver.submit(PlacementProblem(version=SLOW, now_s=0.0, nodes=[slow], groups=[]))

    async def is_at_work() -> bool:
        return started.exists()

    await until(is_at_work)
    await solver.close()
    await until(lambda: is_gone(worker), timeout_s=5)


async def test_a_worker_that_hangs_is_replaced(redis: Redis, tmp_path: Path) -> None:
    """Else no plan would ever be made again: groups whose model no node holds would wait for ever."""
    before = num_failures("process_died")
    solver = Solver(solve, redis, INBOX, timeout_s=START_S)
    started = tmp_path / "started"
    slow = NodeState(str(started), "")
    solver.submit(PlacementProblem(version=SLOW, now_s=0.0, nodes=[slow], groups=[]))

    async def is_at_work() -> bool:
        return started.exists()

    await until(is_at_work)
    solver.submit(problem(2))
    await plan_of(redis, 2)
    assert num_failures("process_died") == before + 1
    await solver.close()


async def live_and_be_killed(url: str, *, at_once: bool) -> None:
    """A process with a worker that has solved something, or that has only just been started."""
    redis = connect(url)
    solver = Solver(solve, redis, INBOX)
    solver.submit(problem(1))
    await (until(has_child) if at_once else plan_of(redis, 1))
    os.kill(os.getpid(), signal.SIGKILL)
    await solver.close()  # who is not reached; it keeps the solver until then


async def has_child() -> bool:
    return bool(psutil.Process().children())


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_killed_service_leaves_no_worker_and_no_words(redis: Redis, redis_url: str, at_once: bool) -> None:
    """What is not JSON does not belong into a log. stderr ends with the last who holds it, the worker too."""
    call = f"live_and_be_killed({redis_url!r}, at_once={at_once})"
    life = f"import asyncio; from tests.redis.test_solver import *; asyncio.run({call})"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", life, stderr=asyncio.subprocess.PIPE)
    _, stderr = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert (process.returncode, stderr) == (-signal.SIGKILL, b"")
