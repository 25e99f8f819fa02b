"""Runs of Redis scripts, many in one round trip: a crowd of requests needs one connection, not one each.

A caller waits for the answer to its own run. What has come while one batch was on its way is the next one, so the
scripts are run in the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from shared.bus.bus import SOCKET_TIMEOUT_S
from shared.bus.held_connection import HeldConnection
from shared.service.background.tasks import cancel_all

MAX_BATCH_RUNS = 128  # at some 30 µs each: Redis is held up for 4 ms
MAX_BATCH_BYTES = 1 << 20  # what one batch holds beside its first run, which may be larger
MAX_WAITING = 65_536  # as many ends as are remembered for a queue that is away; beyond, nothing is taken
MAX_WAIT_S = 10.0  # a run that could not be sent for so long is refused: Redis is silent, and others wait behind it

Argument = str | bytes | int


class NotSentError(RedisError):
    """Redis has not been asked: too many are waiting to be, or have been for too long."""


@dataclass(slots=True)
class _Run:
    """One run of a script, and the future of its answer."""

    script: BatchedScript
    keys: Sequence[str]
    args: Sequence[Argument]
    since_s: float
    answer: asyncio.Future[Any]
    num_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_bytes = sum(len(part) for part in (*self.keys, *self.args) if not isinstance(part, int))


class BatchedScripts:
    """Sends runs of scripts over one connection at a time, a batch after the other."""

    def __init__(self, redis: Redis) -> None:
        self._connection = HeldConnection(redis, SOCKET_TIMEOUT_S)
        self._waiting: deque[_Run] = deque()
        self._is_asked = asyncio.Event()
        self._batches: asyncio.Task[None] | None = None

    def register_script(self, script: str) -> BatchedScript:
        """A script to be run in batches; named and called as redis-py's."""
        return BatchedScript(self, script)

    async def run(self, script: BatchedScript, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """What the script answers. Raises as Redis does, for this run alone; `NotSentError` where it was not asked.

        A connection that is lost leaves all runs of its batch in doubt: a `RedisError` or an `OSError`.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise NotSentError(f"{MAX_WAITING} commands wait for Redis already")
        loop = asyncio.get_running_loop()
        run = _Run(script, keys, args, loop.time(), loop.create_future())
        self._waiting.append(run)
        self._is_asked.set()
        if self._batches is None or self._batches.done():
            self._batches = asyncio.create_task(self._send_all())
        return await run.answer

    async def aclose(self) -> None:
        """End what is under way; callers that wait are cancelled."""
        if self._batches is not None:
            await cancel_all([self._batches])
        for run in self._waiting:
            run.answer.cancel()
        self._waiting.clear()
        await self._connection.give_back()

    async def _send_all(self) -> None:
        """One batch behind the other, from the first run on until it is closed: a task each would cost as much."""
        while await self._is_asked.wait():
            self._is_asked.clear()
            while batch := self._next_batch():
                await self._answer(batch)

    async def _answer(self, batch: Sequence[_Run]) -> None:
        try:
            await self._send(batch)
        except Exception as error:  # whatever it is, callers that wait hear of it
            for run in batch:
                if not run.answer.done():
                    run.answer.set_exception(error)
        finally:
            for run in batch:
                run.answer.cancel()  # without effect on those that were answered

    def _next_batch(self) -> list[_Run]:
        """What has waited longest, as much as fits. One not waited for any more is left out: nothing has been done."""
        now = asyncio.get_running_loop().time()
        batch: list[_Run] = []
        num_bytes = 0
        while self._waiting and len(batch) < MAX_BATCH_RUNS:
            run = self._waiting[0]
            if batch and num_bytes + run.num_bytes > MAX_BATCH_BYTES:
                break
            self._waiting.popleft()
            if run.answer.done():
                continue
            if now - run.since_s > MAX_WAIT_S:
                run.answer.set_exception(NotSentError(f"Redis could not be asked for {MAX_WAIT_S:g} s"))
                continue
            batch.append(run)
            num_bytes += run.num_bytes
        return batch

    async def _send(self, batch: Sequence[_Run]) -> None:
        unknown = _settle(batch, await self._ask(batch))
        if unknown:  # a new master, or one that was restarted, does not know them yet; nothing of these was done
            replies = await self._ask(unknown, load=sorted({run.script.text for run in unknown}))
            for run in _settle(unknown, replies):
                run.answer.set_exception(NotSentError("Redis does not keep its scripts"))

    async def _ask(self, runs: Sequence[_Run], load: Sequence[str] = ()) -> list[Any]:
        """The replies, errors among them; scripts to ``load`` go first, on the same connection."""
        loads = [("SCRIPT", "LOAD", script) for script in load]
        calls = [("EVALSHA", run.script.digest, len(run.keys), *run.keys, *run.args) for run in runs]
        replies = await self._connection.ask(*loads, *calls)
        return replies[len(load) :]


class BatchedScript:
    """One script; called like those of redis-py."""

    def __init__(self, scripts: BatchedScripts, text: str) -> None:
        self._scripts = scripts
        self.text = text
        self.digest = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - the name that Redis gives it

    async def __call__(self, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """As `BatchedScripts.run`."""
        return await self._scripts.run(self, keys, args)


def _settle(runs: Sequence[_Run], replies: Sequence[Any]) -> list[_Run]:
    """Give each its reply; those whose script is unknown are answered and have none yet."""
    unknown = []
    for run, reply in zip(runs, replies, strict=True):
        if isinstance(reply, NoScriptError):
            unknown.append(run)
        elif run.answer.done():
            continue  # its caller has left
        elif isinstance(reply, Exception):
            run.answer.set_exception(reply)
        else:
            run.answer.set_result(reply)
    return unknown
