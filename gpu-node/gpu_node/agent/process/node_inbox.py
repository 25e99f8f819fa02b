"""What an epoch of a node is told by stream: read from its beginning on, also where Redis comes back as another one."""

from __future__ import annotations

import asyncio

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.bus import streams
from shared.bus.bus import StreamReader
from shared.bus.redis_life import RedisLife
from shared.messages.memory.blocks import TellBlocks
from shared.messages.memory.leases import LeaseOrder
from shared.messages.nodes.nodes import Fence, Load, Serve
from shared.messages.requests.requests import Abort, Evict, ReadAhead, VirtualQueue

BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0

InboxMessage = VirtualQueue | Abort | Evict | ReadAhead | Load | Serve | Fence | TellBlocks | LeaseOrder

log = structlog.get_logger()


class NodeInbox:
    """Messages of the queue manager, the scheduler and the KV manager. A Redis that is away is waited for."""

    def __init__(self, redis: Redis, node: str) -> None:
        self._reader = StreamReader(redis, streams.node_inbox(node))
        self._life = RedisLife(redis)

    async def open(self) -> None:
        """Read from now on: what was said to earlier epochs does not concern this one."""
        while True:
            try:
                await self._life.begin()
                await self._reader.start()
            except (RedisError, OSError) as error:
                log.warning("inbox unreachable", error=str(error))
                await asyncio.sleep(MAX_BACKOFF_S)
            else:
                return

    async def read(self) -> list[InboxMessage]:
        """Wait for messages; what is none for a node is logged and left out."""
        while True:
            try:
                messages = await self._reader.read()
            except (RedisError, OSError) as error:
                log.warning("inbox unreadable", error=str(error))
                await asyncio.sleep(BACKOFF_S)
                continue
            told: list[InboxMessage] = []
            for message in messages:
                if isinstance(message, InboxMessage):
                    told.append(message)
                else:
                    log.error("not a message for a node", type=type(message).__name__)
            return told

    async def is_elsewhere(self) -> bool:
        """Whether Redis is another one than it was when it was asked last; then the inbox is read there from its start.

        One that does not answer is asked again by the next call.
        """
        try:
            if not await self._life.is_another():
                return False
            await self._reader.put_back()
        except (RedisError, OSError) as error:
            log.warning("redis not looked at", error=str(error))
            return False
        self._life.settle()
        return True
