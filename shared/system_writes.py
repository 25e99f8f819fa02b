"""What the cluster writes for itself: done in one step, and also when Redis is full (see `scripts.WRITE`).

Only a new request asks for memory as an ordinary command, which Redis refuses at ``maxmemory``. All else frees memory,
or keeps together what will: signs of life, tokens, ends, cancels, further attempts.
"""

from __future__ import annotations

from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared import scripts
from shared.codec import encode
from shared.message import Message
from shared.streams import CONSUMER_GROUP


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
    """Nobody needs it any more."""
    return Write("delete", key)


def keep(key: str, data: bytes, ttl_s: int) -> Write:
    """Keep bytes under a key for so long."""
    return Write("set", key, data, ttl_s)


class SystemWriter:
    """Writes over one connection pool."""

    def __init__(self, redis: Redis) -> None:
        self._script = redis.register_script(scripts.WRITE)

    async def write(self, *writes: Write) -> None:
        """Do all of them in one step; `WriteFaultError` says what could not be done when the rest was."""
        keys = [write.key for write in writes]
        args = [part for write in writes for part in (write.op, write.data, write.option)]
        faults = await self._script(keys=keys, args=args)
        if faults:
            raise WriteFaultError("; ".join(fault.decode() for fault in faults))
