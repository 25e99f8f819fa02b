"""The agent's side of Redis: pull with its payloads, publish a step, say how the node is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from redis.asyncio import Redis

from gpu_node.agent.actions import Entry, Publish, Pull, SayInventory, Store, Taken
from shared import inventories, scripts, streams
from shared.bus import bury
from shared.codec import FIELD, UndecodableError, decode, decode_payload, encode
from shared.nodes import Heartbeat, NodeGone
from shared.requests import Attempt, Enqueued, Evicted, Finished

log = structlog.get_logger()


class NodeBus:
    """Redis operations of one epoch of a node. They raise `RedisError`; the agent decides what that means."""

    def __init__(self, redis: Redis, node: str, epoch: str) -> None:
        self._redis = redis
        self._node = node
        self._epoch = epoch
        self._pull = redis.register_script(scripts.PULL)

    async def pull(self, pull: Pull) -> Taken:
        """Take entries of a group; the queue manager is told in the same atomic step."""
        prefix = streams.payload("")
        reply: Any = await self._pull(
            keys=[streams.group(pull.group), streams.QUEUE],
            args=[streams.CONSUMER_GROUP, self._epoch, pull.num_requests, self._node, self._epoch, pull.group, prefix],
        )
        entries = []
        for entry_id, data, payload in reply:
            enqueued = decode(data)
            assert isinstance(enqueued, Enqueued), "only the queue manager writes to a group"
            entries.append(await self._entry(entry_id, enqueued, payload))
        return Taken(pull.group, pull.num_requests, entries)

    async def _entry(self, entry_id: bytes, enqueued: Enqueued, data: bytes | None) -> Entry:
        if data is None:
            return Entry(entry_id, enqueued, None)
        try:
            return Entry(entry_id, enqueued, decode_payload(data))
        except UndecodableError as error:
            log.error("payload undecodable", request_id=enqueued.request_id, error=str(error))
            await bury(self._redis, streams.payload(enqueued.request_id), b"", {FIELD: data}, str(error))
            return Entry(entry_id, enqueued, None, unreadable=str(error))

    async def publish(self, publish: Publish) -> None:
        """One transaction: tokens to each gateway that still exists, acknowledgements, what finished or was evicted.

        Safe to repeat: gateways drop tokens by index, acknowledging twice does nothing, the queue manager forgets and
        takes back once.
        """
        async with self._redis.pipeline(transaction=True) as pipe:
            for gateway, tokens in publish.tokens.items():
                # NOMKSTREAM: the stream of a gateway that has gone must not come back
                fields: dict[Any, Any] = {FIELD: encode(tokens)}
                pipe.xadd(streams.tokens(gateway), fields, maxlen=streams.MAX_TOKEN_BACKLOG, nomkstream=True)
            for ack in publish.acks:
                pipe.xack(streams.group(ack.group), streams.CONSUMER_GROUP, ack.entry_id)
                pipe.xdel(streams.group(ack.group), ack.entry_id)
            if publish.finished:
                finished = Finished(node=self._node, epoch=self._epoch, requests=publish.finished)
                pipe.xadd(streams.QUEUE, {FIELD: encode(finished)})
            if publish.evicted:
                evicted = Evicted(node=self._node, epoch=self._epoch, requests=publish.evicted)
                pipe.xadd(streams.QUEUE, {FIELD: encode(evicted)})
            await pipe.execute(raise_on_error=False)

    async def say_inventory(self, inventory: SayInventory) -> None:
        """Tell the queue manager what is here. Safe to repeat."""
        parts = inventories.of_node(self._node, self._epoch, inventory.running, inventory.parked)
        async with self._redis.pipeline(transaction=True) as pipe:
            for part in parts:
                pipe.xadd(streams.QUEUE, {FIELD: encode(part)})
            await pipe.execute()

    async def store(self, store: Store) -> None:
        """Lay down the image of a request that was handed over."""
        await self._redis.set(streams.kv_image(store.request_id), store.data, ex=streams.KV_IMAGE_TTL_S)

    async def take_image(self, request_id: str) -> bytes:
        """The image of a request, which is gone with that; empty if there is none."""
        data: Any = await self._redis.getdel(streams.kv_image(request_id))
        return data or b""

    async def beat(self, heartbeat: Heartbeat) -> None:
        """One heartbeat to the scheduler and to the KV manager."""
        await self._tell_services(encode(heartbeat))

    async def say_goodbye(self, *, has_crashed: bool = False, blamed: Sequence[Attempt] = ()) -> None:
        """Hand the node's work back at once instead of letting the heartbeats run out."""
        gone = NodeGone(node=self._node, epoch=self._epoch, has_crashed=has_crashed, blamed=list(blamed))
        await self._tell_services(encode(gone))

    async def _tell_services(self, data: bytes) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for stream in (streams.SCHEDULER, streams.KV):
                pipe.xadd(stream, {FIELD: data}, maxlen=streams.MAX_SERVICE_LOG, approximate=True)
            await pipe.execute()
