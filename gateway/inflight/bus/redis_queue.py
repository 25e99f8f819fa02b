"""The gateway's side of Redis: payloads and submissions out, tokens in, a sign of life every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import structlog
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, RedisError

from gateway.inflight.bus.batched_scripts import BatchedScripts
from gateway.inflight.bus.portions import portions, split_first_tokens
from gateway.inflight.bus.presence import Presence
from gateway.inflight.bus.released import Released
from gateway.inflight.dispatcher import Dispatcher, Inbound
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from shared.bus import scripts, streams
from shared.bus.bus import StreamReader
from shared.bus.redis_health import RedisHealth, look
from shared.bus.system_writes import SystemWriter, Write, add, delete, keep
from shared.messages.codec import encode, encode_apart
from shared.messages.memory.blocks import Locate
from shared.messages.messages import AnyMessage
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Cancel, GatewayBeat, GatewayGone, Submit
from shared.service.background.tasks import Supervised
from shared.service.log.durability import Confirmations, Waiting

BEAT_S = 2.0
BACKOFF_S = 0.2
MAX_BACKOFF_S = 2.0
MAX_READ_ENTRIES = 64  # at a time: to decode those of large batches takes some milliseconds
MAX_READS_AHEAD = 4  # read, but for their first tokens not delivered yet
TRIM_EVERY_READS = 256

log = structlog.get_logger()


class RedisQueue:
    """`QueuePort` over Redis, for one life of one gateway replica."""

    def __init__(self, redis: Redis, gateway_id: str, waiting: Waiting | None = None, beat_s: float = BEAT_S) -> None:
        self._redis = redis
        self._gateway = gateway_id
        self._beat_s = beat_s
        self._reader = StreamReader(redis, streams.tokens(gateway_id))
        self._waiting = waiting
        self._confirmations = Confirmations(redis, waiting) if waiting else None
        self.scripts = BatchedScripts(redis)
        """What else this process runs goes along with its writes."""
        self._submit_new = self.scripts.register_script(scripts.SUBMIT)
        self._writer = SystemWriter(self.scripts)
        self._read_ahead: asyncio.Queue[list[Inbound]] = asyncio.Queue(MAX_READS_AHEAD)
        self._tasks = Supervised()
        self._released = Released()
        self._with_pictures: set[str] = set()
        """Requests with images, which have a key more each, until it is deleted."""
        self._presence = Presence(redis, self._writer, gateway_id, self._reader, self._released, self._with_pictures)
        self._not_ready = "the token stream is not open"
        self.health = RedisHealth()
        """How Redis was when it was asked last; its room for requests is the gateway's."""

    @property
    def not_ready(self) -> str:
        """What keeps this gateway from serving, or ``""``."""
        return self._tasks.failed or self._not_ready

    # --- QueuePort ------------------------------------------------------------------------------------------------

    async def submit(self, payload: Payload, submit: Submit) -> None:
        """Payload and `Submit` in one step; the payload expires on its own should this gateway die.

        With them the KV manager is asked (`Locate`): it looks up while the queue manager accepts, which it answers.
        A first attempt is the one thing that a full Redis refuses: all that frees memory goes through.
        """
        key, question = streams.payload(payload.request_id), Locate.of(submit)
        data, contents = encode_apart(payload)
        if contents:
            await self._write_pictures(payload.request_id, contents, is_first=not submit.attempt)
        if submit.attempt:
            await self._write(keep(key, data, streams.PAYLOAD_TTL_S), add(streams.QUEUE, submit))
            await self._ask(question)
            return
        keys: list[str] = [key, streams.QUEUE]
        args: list[bytes | int] = [data, streams.PAYLOAD_TTL_S, encode(submit)]
        if question:
            keys.append(streams.KV)
            args += [encode(question), streams.MAX_KV_LOG]
        try:
            fault = await self._submit_new(keys=keys, args=args)
        except OutOfMemoryError as error:
            raise QueueFullError(str(error)) from error
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error
        if fault:
            _note_unasked(fault.decode())
        # not further attempts: they are told again after a fail-over, and tokens must not wait behind them
        await self._confirm(key)

    async def _write_pictures(self, request_id: str, contents: bytes, *, is_first: bool) -> None:
        """Before the request itself: a node that finds that finds them. Again for each attempt, should Redis have lost
        them; they expire on their own should this gateway die."""
        key = streams.pictures(request_id)
        self._with_pictures.add(request_id)
        if not is_first:
            await self._write(keep(key, contents, streams.PAYLOAD_TTL_S))
            return
        try:
            await self._redis.set(key, contents, ex=streams.PAYLOAD_TTL_S)
        except OutOfMemoryError as error:
            raise QueueFullError(str(error)) from error
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error

    async def _ask(self, question: Locate | None) -> None:
        """Of a further attempt, apart from it: that it cannot be asked must not have it submitted once more."""
        if question is None:
            return
        try:
            await self._writer.write(add(streams.KV, question, streams.MAX_KV_LOG))
        except (RedisError, OSError) as error:
            _note_unasked(str(error))

    async def _confirm(self, key: str) -> None:
        """Wait until a request is where it survives a fail-over; see `DurabilityOptions` for what else may come."""
        if self._confirmations is None or self._waiting is None:
            return
        try:
            is_there = await self._confirmations.confirm(key, streams.PAYLOAD_TTL_S)
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error
        if not is_there and self._waiting.options.strict:
            raise QueueUnavailableError("too few replicas of Redis had the request in time")

    async def cancel(self, request_id: str) -> None:
        """Delete the payload and say so. Images, too, that are not known of any more: a submit whose end is unknown may
        have written them behind an earlier cancel."""
        keys = (streams.payload(request_id), streams.pictures(request_id))
        await self._write(*map(delete, keys), add(streams.QUEUE, Cancel(request_id=request_id)))
        self._note_released(request_id)

    async def finish(self, request_id: str) -> None:
        """Delete the payload; the node has told the queue manager itself."""
        await self._write(*self._deletions(request_id))
        self._note_released(request_id)

    def _deletions(self, request_id: str) -> list[Write]:
        deletions = [delete(streams.payload(request_id))]
        if request_id in self._with_pictures:
            deletions.append(delete(streams.pictures(request_id)))
        return deletions

    def _note_released(self, request_id: str) -> None:
        self._with_pictures.discard(request_id)
        self._released.note(request_id, asyncio.get_running_loop().time())

    async def _write(self, *writes: Write) -> None:
        try:
            await self._writer.write(*writes)
        except (RedisError, OSError) as error:
            raise QueueUnavailableError(str(error)) from error

    # --- life -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, dispatcher: Dispatcher, stop: Callable[[], None] | None = None) -> AsyncIterator[None]:
        """Receive for ``dispatcher`` and show signs of life; on leaving say goodbye.

        Should one of the two fail, all answers are ended and ``stop`` is called: no token would come any more.
        `TaskFailedError` on leaving then.
        """

        def end() -> None:
            dispatcher.stop()
            if stop is not None:
                stop()

        await self._presence.open()
        self._not_ready = ""
        async with self._tasks.until_left(end):
            self._tasks.start("receiving tokens", self._receive(dispatcher))
            self._tasks.start("delivering tokens", self._deliver_rest(dispatcher))
            self._tasks.start("showing signs of life", self._beat(dispatcher))
            try:
                yield
            finally:
                await dispatcher.drain()
                await self._tasks.cancel()
                if self._confirmations:
                    await self._confirmations.aclose()
                await self._say_goodbye()
                await self.scripts.aclose()

    async def _say_goodbye(self) -> None:
        try:
            await self._writer.write(add(streams.QUEUE, GatewayGone(gateway=self._gateway)))
        except (RedisError, OSError) as error:
            log.warning("no goodbye: the signs of life will run out instead", error=str(error))

    async def _receive(self, dispatcher: Dispatcher) -> None:
        """Read, and deliver first tokens at once: clients that wait for them have nothing yet."""
        num_reads = 0
        while True:
            try:
                messages = await self._reader.read(max_entries=MAX_READ_ENTRIES)
                num_reads += bool(messages)
                if num_reads >= TRIM_EVERY_READS:
                    num_reads = 0
                    await self._reader.trim()
            except (RedisError, OSError) as error:
                log.warning("token stream unreadable", error=str(error))
                await asyncio.sleep(BACKOFF_S)
                continue
            first, rest = split_first_tokens(_inbound(messages))
            await self._deliver_all(dispatcher, first)
            if rest:
                await self._read_ahead.put(rest)

    async def _deliver_rest(self, dispatcher: Dispatcher) -> None:
        while True:
            await self._deliver_all(dispatcher, await self._read_ahead.get())

    async def _deliver_all(self, dispatcher: Dispatcher, messages: Iterable[Inbound]) -> None:
        for portion in portions(messages):
            for message in portion:
                await self._deliver(dispatcher, message)
            await asyncio.sleep(0)  # handlers that have been told run, and so do all others

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
            await self._look()
            try:
                await self._presence.beat(dispatcher)
            except (RedisError, OSError) as error:
                self._not_ready = f"redis: {error}"
                log.warning("no sign of life sent", error=str(error))
            else:
                self._not_ready = ""
            await asyncio.sleep(self._beat_s)

    async def _look(self) -> None:
        try:
            self.health = await look(self._redis)
        except (RedisError, OSError) as error:
            log.warning("memory of redis unknown, going by the last look", error=str(error))


def _note_unasked(error: str) -> None:
    log.warning("the KV manager cannot be asked", key=streams.KV, error=error)


def _inbound(messages: Iterable[AnyMessage]) -> Iterator[Inbound]:
    for message in messages:
        if isinstance(message, Inbound):
            yield message
        elif not isinstance(message, GatewayBeat):  # which is the mark that opens the stream
            log.error("not a message for a gateway", type=type(message).__name__)
