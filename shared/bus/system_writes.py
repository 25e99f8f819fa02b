"""What the cluster writes for itself: done in one step, and also when Redis is full (see `scripts.WRITE`).

Only a new request is refused by a Redis at ``maxmemory`` (`scripts.SUBMIT`). All else frees memory, or keeps together
what will: signs of life, tokens, ends, cancels, further attempts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import ResponseError

from shared.bus import scripts
from shared.bus.streams import CONSUMER_GROUP
from shared.messages.codec import encode
from shared.messages.message import Message


class WriteFaultError(ResponseError):
    """Keys that are not what they should be; what was written to others stays written."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of several; made by the functions below."""

    op: str
    key: str
    data: bytes | str = b""
    option: str | int = 0


def add(stream: str, message: Message | bytes, max_entries: int = 0, *, to_existing: bool = False) -> Write:
    """Append a message, encoded or not; the oldest go beyond about ``max_entries``, if it is not 0."""
    data = message if isinstance(message, bytes) else encode(message)
    return Write("add-existing" if to_existing else "add", stream, data, max_entries)


def acknowledge(group: str, entry_id: bytes) -> Write:
    """An entry of a group's stream is done with."""
    return Write("ack", group, entry_id, CONSUMER_GROUP)


def delete(key: str) -> Write:
    """It is not needed any more."""
    return Write("delete", key)


def keep(key: str, data: bytes, ttl_s: int) -> Write:
    """Keep bytes under a key for so long."""
    return Write("set", key, data, ttl_s)


class RunsScripts(Protocol):
    """A client of Redis, or whatever else takes scripts as one does."""

    def register_script(self, script: str) -> Callable[..., Awaitable[Any]]:
        """What runs the script when it is called with ``keys`` and ``args``."""


class SystemWriter:
    """Writes by a client, or by batches of scripts."""

    def __init__(self, redis: RunsScripts) -> None:
        self._script = redis.register_script(scripts.WRITE)

    async def write(self, *writes: Write) -> None:
        """Do all of them in one step; `WriteFaultError` says what could not be done when the rest was."""
        keys = [write.key for write in writes]
        args = [part for write in writes for part in (write.op, write.data, write.option)]
        faults = await self._script(keys=keys, args=args)
        if faults:
            raise WriteFaultError("; ".join(fault.decode() for fault in faults))
