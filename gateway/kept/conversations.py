"""Conversations of the Responses API, in Redis: which operation may write to one, and what is kept of it.

One operation at a time works on a conversation: it locks it, and what it then reads is what it writes over. A lock is
void when the process that took it has died, and the response in the background, if it was taken for one, has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from gateway.inflight.kept_responses import MAX_COUNTED_OUT, MAX_RESPONSE_BYTES, PREFIXES
from gateway.kept.unavailable import telling_unavailable
from shared.bus import kept_scripts, streams
from shared.bus.system_writes import RunsScripts
from shared.config.config import ClusterConfig

_log = structlog.get_logger(__name__)


class ConversationRecord(Struct, frozen=True, omit_defaults=True):
    """One of them."""

    tenant: str
    created_at: int
    metadata: dict[str, str] = {}
    items: list[dict[str, Any]] = []
    """In their order, each with an id of its own."""
    last: str = ""
    """The operation that wrote it last."""


class ConversationLockedError(Exception):
    """Another operation works on it."""


class ConversationTooLongError(Exception):
    """It would have more than `MAX_RESPONSE_BYTES`."""


class ConversationStore:
    """Where they are. All calls raise `QueueUnavailableError` where Redis does not answer, or has no room."""

    def __init__(self, redis: RunsScripts, process: str, keep_s: float, max_bytes: int) -> None:
        """``process``: as `Background.follower`, which shows that it lives."""
        run = redis.register_script
        self._keep, self._find = run(kept_scripts.KEEP_RESPONSE), run(kept_scripts.FIND_RESPONSE)
        self._lock, self._write = run(kept_scripts.LOCK_CONVERSATION), run(kept_scripts.WRITE_CONVERSATION)
        self._unlock, self._forget = run(kept_scripts.UNLOCK_CONVERSATION), run(kept_scripts.FORGET_RESPONSE)
        self._process = process
        self._soon: set[asyncio.Task[None]] = set()
        self._keep_ms = int(keep_s * 1000)
        self._limits = (self._keep_ms, max_bytes, MAX_COUNTED_OUT)

    async def make(self, conversation_id: str, conversation: ConversationRecord) -> None:
        """A new one. `ConversationTooLongError`."""
        with telling_unavailable():
            await self._keep(keys=_INDEX, args=[*PREFIXES, conversation_id, _encoded(conversation), *self._limits])

    async def find(self, tenant: str, conversation_id: str) -> ConversationRecord | None:
        """None where this tenant has none by this id."""
        with telling_unavailable():
            data = await self._find(keys=[streams.response(conversation_id)], args=[])
        return _decoded(data, tenant)

    async def lock(self, tenant: str, conversation_id: str, operation: str) -> tuple[ConversationRecord, int] | None:
        """As it is now, for this operation alone, with its bytes; None as `find`. `ConversationLockedError`."""
        keys = [streams.conversation_lock(conversation_id), streams.response(conversation_id)]
        with telling_unavailable():
            data = await self._lock(
                keys=[*keys, streams.FOLLOWERS, streams.BACKGROUND], args=[self._process, operation, self._keep_ms]
            )
        if data == 0:
            raise ConversationLockedError
        found = _decoded(data, tenant)
        if found is None and data is not None:
            await self.unlock(conversation_id, operation)
        return None if found is None else (found, len(data))

    async def write(self, conversation_id: str, operation: str, conversation: ConversationRecord) -> bool:
        """As it is from now on; whether it was there, and locked for this operation. `ConversationTooLongError`."""
        data = _encoded(conversation)
        with telling_unavailable():
            done = await self._write(
                keys=[*_INDEX, streams.conversation_lock(conversation_id)],
                args=[*PREFIXES, conversation_id, data, *self._limits, operation],
            )
        if done != 1:
            why = "it was removed" if done == 0 else "another operation has locked it"
            _log.warning("conversation not written", conversation_id=conversation_id, operation=operation, why=why)
        return bool(done == 1)

    async def unlock(self, conversation_id: str, operation: str) -> None:
        """Others may work on it."""
        with telling_unavailable():
            await self._unlock(keys=[streams.conversation_lock(conversation_id)], args=[operation])

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something of this done that no request waits for."""
        task = asyncio.create_task(work)
        self._soon.add(task)
        task.add_done_callback(self._soon.discard)

    async def drain(self) -> None:
        """Wait until that is done."""
        while self._soon:
            await asyncio.wait(self._soon)

    async def forget(self, conversation_id: str) -> bool:
        """Whether it was there."""
        with telling_unavailable():
            return bool(await self._forget(keys=_INDEX, args=[*PREFIXES, conversation_id]))


def conversations(redis: RunsScripts, config: ClusterConfig, process: str) -> ConversationStore | None:
    """As the configuration says; None where nothing is kept."""
    options = config.gateway
    if options.keep_responses_s is None:
        return None
    return ConversationStore(redis, process, options.keep_responses_s, options.kept_responses_bytes)


def _encoded(conversation: ConversationRecord) -> bytes:
    data = msgspec.json.encode(conversation)
    if len(data) > MAX_RESPONSE_BYTES:
        raise ConversationTooLongError
    return data


def _decoded(data: bytes | None, tenant: str) -> ConversationRecord | None:
    found = None if data is None else msgspec.json.decode(data, type=ConversationRecord)
    return found if found is not None and found.tenant == tenant else None


_INDEX = [streams.RESPONSES, streams.RESPONSES_BYTES]
