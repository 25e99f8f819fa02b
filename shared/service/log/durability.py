"""Writes that wait for replicas, or for the disk (``WAIT``, ``WAITAOF``), and what is known when they do not get there.

What Redis has answered stands in its master, whatever comes of the waiting. So waiting bounds what a fail-over may
lose: a service commits its next batch when the last one is there, a gateway begins an answer when its request is.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from prometheus_client import Counter
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from shared.config.services.durability import DurabilityOptions
from shared.errors import OperatorError
from shared.service.background.tasks import cancel_all

DEGRADED_WAIT_S = 0.05  # a wait after one that was in vain: replicas that are gone must not cost each batch a second
MAX_CONFIRMED_KEYS = 256  # of one round; the others go with the next

UNREPLICATED = Counter(
    "treadle_unreplicated_writes_total", "Writes that too few replicas or disks had in time", ["process"]
)

log = structlog.get_logger()


class DurabilityError(OperatorError):
    """This Redis cannot do what the configuration asks of it."""


class Waiting:
    """The command that waits, and whether it was in vain of late."""

    def __init__(self, options: DurabilityOptions, process: str) -> None:
        self.options = options
        self._process = process
        self._is_degraded = False
        UNREPLICATED.labels(process)  # is there from the start, so that the first event is an increase

    @property
    def commands(self) -> list[tuple[str | int, ...]]:
        """To be sent behind the writes, on their connection."""
        wait_s = DEGRADED_WAIT_S if self._is_degraded else self.options.timeout_s
        return _commands(self.options, max(1, int(wait_s * 1000)))

    def reached(self, replies: list[Any], num_writes: int = 1) -> bool:
        """What the commands answered, as yes or no; a no is counted, and said when it begins and when it is over."""
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        answers = iter(replies)
        replicas = next(answers) if self.options.replicas else 0
        disks = next(answers)[0] if self.options.fsync else 0
        reached = bool(replicas >= self.options.replicas and disks >= self.options.fsync)
        if not reached:
            UNREPLICATED.labels(self._process).inc(num_writes)
        if reached is self._is_degraded:
            self._is_degraded = not reached
            say = log.info if reached else log.warning
            say(
                "writes are where they should be" if reached else "writes not replicated, or not on disk, in time",
                replicas=replicas,
                wanted=self.options.replicas,
                on_disk=disks,
            )
        return reached


class DurableScript:
    """A script whose call returns when its writes are where they should be, or when they were waited for in vain."""

    def __init__(self, redis: Redis, script: str, waiting: Waiting) -> None:
        self._redis = redis
        self._script = redis.register_script(script)
        self._waiting = waiting

    async def __call__(self, *, keys: list[str], args: list[Any]) -> Any:
        """What the script answers; raises as it does."""
        try:
            return await self._call(keys, args)
        except NoScriptError:  # nothing was run; a new master, or one that was restarted, does not know it yet
            await self._redis.script_load(self._script.script)
            return await self._call(keys, args)

    async def _call(self, keys: list[str], args: list[Any]) -> Any:
        # one after the other on one connection: another one's WAIT would not know of these writes
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.evalsha(self._script.sha, len(keys), *keys, *args)
            for command in self._waiting.commands:
                pipe.execute_command(*command)
            reply, *waited = await pipe.execute(raise_on_error=False)
        if isinstance(reply, Exception):
            raise reply
        self._waiting.reached(waited)
        return reply


class Confirmations:
    """Says of keys that were written whether they are where they should be; many at a time, with one wait for all.

    Each key's lifetime is set anew first, and that is what is waited for. It is a later write than the key's own and
    succeeds only where the key is, so a master that took over without it confirms nothing.
    """

    def __init__(self, redis: Redis, waiting: Waiting) -> None:
        self._redis = redis
        self._waiting = waiting
        self._asked: list[tuple[str, int, asyncio.Future[bool]]] = []
        self._rounds: asyncio.Task[None] | None = None

    async def confirm(self, key: str, ttl_s: int) -> bool:
        """Whether the key, which lives for ``ttl_s`` from now on, was where it should be in time."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.append((key, ttl_s, answer))
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._answer_all())
        return await answer

    async def aclose(self) -> None:
        """End what is under way; who waits is cancelled."""
        if self._rounds is not None:
            await cancel_all([self._rounds])
        for _, _, answer in self._asked:
            answer.cancel()

    async def _answer_all(self) -> None:
        while self._asked:
            batch, self._asked = self._asked[:MAX_CONFIRMED_KEYS], self._asked[MAX_CONFIRMED_KEYS:]
            try:
                await self._answer(batch)
            except Exception as error:  # whatever it is, those who wait hear of it
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            finally:
                for _, _, answer in batch:
                    answer.cancel()  # without effect on those that were answered

    async def _answer(self, batch: list[tuple[str, int, asyncio.Future[bool]]]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key, ttl_s, _ in batch:
                pipe.expire(key, ttl_s)
            for command in self._waiting.commands:
                pipe.execute_command(*command)
            replies = await pipe.execute()
        found, waited = replies[: len(batch)], replies[len(batch) :]
        is_reached = self._waiting.reached(waited, len(batch))
        for (_, _, answer), is_there in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(is_reached and bool(is_there))


async def check_durability(redis: Redis, options: DurabilityOptions) -> None:
    """Ask once, before anything depends on it; `DurabilityError` if this Redis does not know how."""
    if not options.is_on:
        return
    try:
        for command in _commands(options, 1):
            await redis.execute_command(*command)  # type: ignore[no-untyped-call]
    except ResponseError as error:
        raise DurabilityError(
            f"durability: this Redis refuses ({error}); fsync needs Redis 7.2 and appendonly yes, and a user that may "
            "WAIT and WAITAOF"
        ) from error


def _commands(options: DurabilityOptions, wait_ms: int) -> list[tuple[str | int, ...]]:
    replicas: list[tuple[str | int, ...]] = [("WAIT", options.replicas, wait_ms)] if options.replicas else []
    # of the master's disk alone: replicas tell of theirs once a second only
    return [*replicas, ("WAITAOF", 1, 0, wait_ms)] if options.fsync else replicas
