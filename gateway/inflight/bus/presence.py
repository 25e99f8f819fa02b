"""A gateway's standing in the cluster: signs of life, its token stream, and what it says again when Redis forgets.

A token stream is gone when the gateway was declared dead while it could not be heard, or when Redis came back without
the end of its log; and nodes trim one that is not read for seconds. In all cases nothing is given up: the queue manager
is told what is in flight, and puts it right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import structlog
from redis.asyncio import Redis

from gateway.inflight.bus.released import Released
from gateway.inflight.dispatcher import Dispatcher
from shared.bus import streams
from shared.bus.bus import StreamReader
from shared.bus.redis_life import RedisLife
from shared.bus.system_writes import SystemWriter, add, delete
from shared.messages.requests import inventories
from shared.messages.requests.requests import GatewayBeat

MAX_KEYS = 512  # in one pipeline: bounds what Redis does for one client at a time

log = structlog.get_logger()


class Presence:
    """One life of one gateway replica. Its calls raise `RedisError`; a beat that failed is made up for by the next."""

    def __init__(
        self,
        redis: Redis,
        writer: SystemWriter,
        gateway: str,
        reader: StreamReader,
        released: Released,
        with_pictures: Collection[str] = (),
    ) -> None:
        """``with_pictures``: requests that have a key for images beside their payload."""
        self._redis = redis
        self._writer = writer
        self._gateway = gateway
        self._reader = reader
        self._released = released
        self._with_pictures = with_pictures
        self._life = RedisLife(redis)
        self._num_inventories = 0
        self._num_lacks_told = 0
        self._refresh_at_s = 0.0

    async def open(self) -> None:
        """Begin to be heard, and to be written to."""
        await self._life.begin()
        await self._open_stream(GatewayBeat(gateway=self._gateway))
        self._refresh_at_s = _now() + streams.PAYLOAD_REFRESH_S

    async def beat(self, dispatcher: Dispatcher) -> None:
        """A sign of life; and whatever else is due.

        A plain one says that whatever was told the beat before has been heard. So a gateway that has to find its place
        anew gives none: the date of its inventory is its sign.
        """
        is_gone = not await self._redis.exists(self._reader.stream)
        has_lack = self._reader.num_lacks > self._num_lacks_told
        if await self._life.is_another() or is_gone or has_lack:
            await self._say_again(dispatcher, is_gone=is_gone)
        else:
            await self._writer.write(add(streams.QUEUE, GatewayBeat(gateway=self._gateway)))
        if _now() >= self._refresh_at_s:
            await self._refresh(dispatcher)

    async def _open_stream(self, sign: GatewayBeat) -> None:
        """Make the token stream (no other process may, see `streams.tokens`) and read it from there on.

        The queue manager gets ``sign`` in the same step: it drops the stream of a gateway that dies.
        """
        await self._reader.start()
        await self._writer.write(add(self._reader.stream, sign), add(streams.QUEUE, sign))

    async def _say_again(self, dispatcher: Dispatcher, *, is_gone: bool) -> None:
        """Safe to repeat, as after a failure in the middle."""
        num_lacks = self._reader.num_lacks
        log.warning("saying the inventory", num_inflight=dispatcher.num_inflight, is_stream_gone=is_gone)
        self._num_inventories += 1
        date = GatewayBeat(gateway=self._gateway, inventory=self._num_inventories)
        if is_gone:
            await self._open_stream(date)
        else:
            await self._reader.put_back()
            await self._writer.write(add(streams.QUEUE, date))
        # behind the date: what came before it and is not listed is over
        for part in inventories.of_gateway(self._gateway, self._num_inventories, dispatcher.attempts()):
            await self._writer.write(add(streams.QUEUE, part))
        await self._delete_again(self._released.recent(_now()))
        self._life.settle()
        self._num_lacks_told = num_lacks

    async def _delete_again(self, request_ids: Sequence[str]) -> None:
        keys = [of(request_id) for request_id in request_ids for of in (streams.payload, streams.pictures)]
        for start in range(0, len(keys), MAX_KEYS):
            await self._writer.write(*map(delete, keys[start : start + MAX_KEYS]))

    async def _refresh(self, dispatcher: Dispatcher) -> None:
        """Payloads live as long as their requests; EXPIRE is not denied where memory is full."""
        request_ids = [attempt.request_id for attempt in dispatcher.attempts()]
        for start in range(0, len(request_ids), MAX_KEYS):
            async with self._redis.pipeline(transaction=False) as pipe:
                for request_id in request_ids[start : start + MAX_KEYS]:
                    pipe.expire(streams.payload(request_id), streams.PAYLOAD_TTL_S)
                    if request_id in self._with_pictures:
                        pipe.expire(streams.pictures(request_id), streams.PAYLOAD_TTL_S)
                await pipe.execute()
        self._refresh_at_s = _now() + streams.PAYLOAD_REFRESH_S


def _now() -> float:
    return asyncio.get_running_loop().time()
