"""The agent's side of Redis: pull with its payloads, publish a step, say how the node is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_node.agent.decisions.actions import GroupEntry, Publish, Pull, SayInventory, Taken
from shared.bus import scripts, streams
from shared.bus.bus import bury, is_refusal
from shared.bus.system_writes import SystemWriter, WriteFaultError, acknowledge, add
from shared.messages.codec import FIELD, UndecodableError, decode, decode_payload, with_contents
from shared.messages.memory.blocks import BlockNews
from shared.messages.memory.leases import LeaseAnswer
from shared.messages.message import Message
from shared.messages.nodes.nodes import Heartbeat, NodeGone
from shared.messages.requests import inventories
from shared.messages.requests.requests import Attempt, Enqueued, Evicted, EvictedRequest, Finished, KvOpened

log = structlog.get_logger()


class PullRefusedError(Exception):
    """Redis does nothing of the kind now, and has done nothing: the pull may be repeated."""


class NodeBus:
    """Redis operations of one epoch of a node. They raise `RedisError`; the agent decides what that means."""

    def __init__(self, redis: Redis, node: str, epoch: str) -> None:
        self._redis = redis
        self._node = node
        self._epoch = epoch
        self._pull = redis.register_script(scripts.PULL)
        self._writer = SystemWriter(redis)
        self._num_told = 0

    def number(self) -> int:
        """For what is told next of requests (`Pulled.number`); what is told again, because it is unknown whether it was
        heard, has the same number."""
        self._num_told += 1
        return self._num_told

    async def pull(self, pull: Pull) -> Taken:
        """Take entries of a group; the queue manager is told in the same atomic step.

        What is no entry of a group goes to the dead letters, and does not count as asked for. `PullRefusedError` where
        nothing was taken; after any other error that is not known.
        """
        entries, num_refused = [], 0
        for entry_id, data, payload, request_id, attempt in await self._take(pull):
            try:
                enqueued = _enqueued(data)
            except UndecodableError as error:
                num_refused += 1
                log.error("group entry undecodable", group=pull.group, entry=entry_id.decode(), error=str(error))
                await bury(self._redis, streams.group(pull.group), entry_id, {FIELD: data}, str(error))
                await self._give_back(pull.group, entry_id, request_id.decode(), attempt)
            else:
                entries.append(await self._entry(entry_id, enqueued, payload))
        return Taken(pull.group, pull.num_requests - num_refused, entries)

    async def _take(self, pull: Pull) -> Any:
        keys = [streams.group(pull.group), streams.QUEUE, streams.DEAD_LETTER]
        group, epoch = streams.CONSUMER_GROUP, self._epoch
        who: list[str | int] = [group, epoch, pull.num_requests, self._node, epoch, pull.group]
        what: list[str | int] = [streams.payload(""), streams.MAX_DEAD_LETTERS, streams.MAX_LETTER_BYTES, self.number()]
        try:
            return await self._pull(keys=keys, args=[*who, *what])
        except RedisError as error:
            if is_refusal(error):
                raise PullRefusedError(str(error)) from error
            raise

    async def _give_back(self, group: str, entry_id: bytes, request_id: str, attempt: int) -> None:
        """The queue manager believes that it runs here, as the pull has said: another attempt, with another entry."""
        lost = EvictedRequest(request_id, attempt, output_tokens=0, kv_tokens=0, kv_at=self._node)
        evicted = Evicted(node=self._node, epoch=self._epoch, requests=[lost], number=self.number())
        await self._writer.write(acknowledge(streams.group(group), entry_id), add(streams.QUEUE, evicted))

    async def _entry(self, entry_id: bytes, enqueued: Enqueued, data: bytes | None) -> GroupEntry:
        if data is None:
            return GroupEntry(entry_id, enqueued, None)
        try:
            payload = decode_payload(data)
            if payload.pictures:
                contents: Any = await self._redis.get(streams.pictures(enqueued.request_id))
                if contents is None:  # its gateway writes both again
                    log.warning("images are gone", request_id=enqueued.request_id, attempt=enqueued.attempt)
                    return GroupEntry(entry_id, enqueued, None)
                payload = with_contents(payload, contents)
            return GroupEntry(entry_id, enqueued, payload)
        except UndecodableError as error:
            log.error("payload undecodable", request_id=enqueued.request_id, error=str(error))
            await bury(self._redis, streams.payload(enqueued.request_id), b"", {FIELD: data}, str(error))
            return GroupEntry(entry_id, enqueued, None, unreadable=str(error))

    async def publish(self, publish: Publish, number: int) -> None:
        """In one step: tokens to each gateway that still exists, acknowledgements, what finished or was evicted.

        Safe to repeat: gateways drop tokens by index, acknowledging twice does nothing, the queue manager forgets
        once, and takes back once by the number.
        """
        # only to a stream that exists: that of a gateway that has gone must not come back
        writes = [
            add(streams.tokens(gateway), tokens, streams.MAX_TOKEN_BACKLOG, to_existing=True)
            for gateway, tokens in publish.tokens.items()
        ]
        writes += [acknowledge(streams.group(ack.group), ack.entry_id) for ack in publish.acks]
        if publish.finished:
            finished = Finished(node=self._node, epoch=self._epoch, requests=publish.finished)
            writes.append(add(streams.QUEUE, finished))
        if publish.evicted:
            evicted = Evicted(node=self._node, epoch=self._epoch, requests=publish.evicted, number=number)
            writes.append(add(streams.QUEUE, evicted))
        try:
            await self._writer.write(*writes)
        except WriteFaultError as error:  # repeating would not help, and double what went to the others
            log.error("part of a step not published", error=str(error))

    async def say_inventory(self, inventory: SayInventory, number: int) -> None:
        """Tell the queue manager what is here. Safe to repeat."""
        parts = inventories.of_node(self._node, self._epoch, inventory.running, inventory.parked, number)
        await self._writer.write(*(add(streams.QUEUE, part) for part in parts))

    async def beat(self, heartbeat: Heartbeat) -> None:
        """One heartbeat to the scheduler and to the KV manager."""
        await self._tell_services(heartbeat)

    async def say_blocks(self, news: BlockNews) -> None:
        """What has changed of the cached blocks, to the KV manager. Of what is too much for it, the oldest is lost."""
        await self._writer.write(add(streams.KV, news, streams.MAX_KV_LOG))

    async def say_lease(self, answer: LeaseAnswer) -> None:
        """What has come of an order about a lease, to the KV manager."""
        await self._writer.write(add(streams.KV, answer, streams.MAX_KV_LOG))

    async def say_opened(self, opened: KvOpened) -> None:
        """That KV of a request can be read, to the queue manager."""
        await self._writer.write(add(streams.QUEUE, opened))

    async def say_goodbye(self, *, has_crashed: bool = False, blamed: Sequence[Attempt] = ()) -> None:
        """Hand the node's work back at once instead of letting the heartbeats run out."""
        gone = NodeGone(node=self._node, epoch=self._epoch, has_crashed=has_crashed, blamed=list(blamed))
        await self._tell_services(gone)

    async def _tell_services(self, message: Message) -> None:
        inboxes = {streams.SCHEDULER: streams.MAX_SERVICE_LOG, streams.KV: streams.MAX_KV_LOG}
        await self._writer.write(*(add(stream, message, most) for stream, most in inboxes.items()))


def _enqueued(data: bytes) -> Enqueued:
    """An entry of a group; `UndecodableError` for all else, which only the queue manager's defect could put there."""
    message = decode(data)
    if not isinstance(message, Enqueued):
        raise UndecodableError(f"a {type(message).__name__} is no entry of a group")
    return message
