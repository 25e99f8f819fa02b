"""The gateway's side of Redis: payloads and submissions out, tokens in, a sign of life every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.dispatcher import Dispatcher, Inbound
from gateway.presence import Presence
from gateway.queue_port import QueueUnavailableError
from gateway.released import Released
from shared import streams
from shared.bus import StreamReader
from shared.codec import FIELD, encode
from shared.message import Message
from shared.payload import Payload
from shared.requests import Cancel, GatewayBeat, GatewayGone, Submit
from shared.tasks import cancel_all

BEAT_S = 2.0
BACKOFF_S = 0.2
MAX_BACKOFF_S = 2.0
TRIM_EVERY_READS = 256

log = structlog.get_logger()


class RedisQueue:
    """`QueuePort` over Redis, for one life of one gateway replica."""

    def __init__(self, redis: Redis, gateway_id: str, beat_s: float = BEAT_S) -> None:
        self._redis = redis
        self._gateway = gateway_id
        self._beat_s = beat_s
        self._reader = StreamReader(redis, streams.tokens(gateway_id))
        self._released = Released()
        self._presence = Presence(redis, gateway_id, self._reader, self._released)
        self.not_ready = "the token stream is not open"
        """What keeps this gateway from serving, or ``""``."""

    # --- QueuePort ------------------------------------------------------------------------------------------------

    async def submit(self, payload: Payload, submit: Submit) -> None:
        """Payload and `Submit` in one transaction; the payload expires on its own should this gateway die."""
        key = streams.payload(payload.request_id)
        await self._transact(submit, lambda pipe: pipe.set(key, encode(payload), ex=streams.PAYLOAD_TTL_S))

    async def cancel(self, request_id: str) -> None:
        """Delete the payload and say so."""
        key = streams.payload(request_id)
        await self._transact(Cancel(request_id=request_id), lambda pipe: pipe.delete(key))
        self._note_released(request_id)

    async def finish(self, request_id: str) -> None:
        """Delete the payload; the node has told the queue manager itself."""
        try:
            await self._redis.delete(streams.payload(request_id))
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error
        self._note_released(request_id)

    def _note_released(self, request_id: str) -> None:
        self._released.note(request_id, asyncio.get_running_loop().time())

    async def _transact(self, message: Message, write: Any) -> None:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                write(pipe)
                pipe.xadd(streams.QUEUE, {FIELD: encode(message)})
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error

    # --- life -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, dispatcher: Dispatcher) -> AsyncIterator[None]:
        """Receive for ``dispatcher`` and show signs of life; on leaving say goodbye."""
        await self._presence.open()
        self.not_ready = ""
        tasks = [asyncio.create_task(self._receive(dispatcher)), asyncio.create_task(self._beat(dispatcher))]
        try:
            yield
        finally:
            await dispatcher.drain()
            await cancel_all(tasks)
            await self._redis.xadd(streams.QUEUE, {FIELD: encode(GatewayGone(gateway=self._gateway))})

    async def _receive(self, dispatcher: Dispatcher) -> None:
        num_reads = 0
        while True:
            try:
                messages = await self._reader.read()
                num_reads += bool(messages)
                if num_reads >= TRIM_EVERY_READS:
                    num_reads = 0
                    await self._reader.trim()
            except (RedisError, OSError) as error:
                log.warning("token stream unreadable", error=str(error))
                await asyncio.sleep(BACKOFF_S)
                continue
            for message in messages:
                if isinstance(message, Inbound):
                    await self._deliver(dispatcher, message)
                elif not isinstance(message, GatewayBeat):  # which is the mark that opens the stream
                    log.error("not a message for a gateway", type=type(message).__name__)

    async def _deliver(self, dispatcher: Dispatcher, message: Inbound) -> None:
        """Until it is delivered: a request that must be submitted again is not dropped because Redis is away."""
        backoff_s = BACKOFF_S
        while True:
            try:
                return await dispatcher.deliver(message)
            except QueueUnavailableError as error:
                log.warning("cannot submit again, retrying", error=str(error), retry_s=backoff_s)
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    async def _beat(self, dispatcher: Dispatcher) -> None:
        while True:
            try:
                await self._presence.beat(dispatcher)
            except (RedisError, OSError) as error:
                self.not_ready = f"redis: {error}"
                log.warning("no sign of life sent", error=str(error))
            else:
                self.not_ready = ""
            await asyncio.sleep(self._beat_s)
