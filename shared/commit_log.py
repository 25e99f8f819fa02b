"""A service's inbox as its log: lease, snapshot, replay, atomic commit. All of the driver's Redis, none of its loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared import scripts, streams
from shared.codec import FIELD, encode
from shared.core import Drop, Effect, Send, Solve
from shared.durability import DurableScript, Waiting
from shared.errors import OperatorError

MAX_BATCH_ENTRIES = 256  # bounds the memory of a batch and the time a commit script blocks Redis
LEASE_S = 5.0  # a standby takes over this long after the active instance fell silent

Entry = tuple[bytes, dict[bytes, bytes]]


class FencedError(OperatorError):
    """Another instance leads now; what this one decided was refused."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a service left in Redis: its last snapshot, how far effects were sent, and entries set aside."""

    snapshot_id: bytes = b"0-0"
    snapshot: bytes | None = None
    committed: bytes = b"0-0"
    aside: frozenset[bytes] = field(default_factory=frozenset)


class CommitLog:
    """Reads the inbox of one service and commits what its core answers."""

    def __init__(self, redis: Redis, service: str, inbox: str, instance: str, waiting: Waiting | None = None) -> None:
        self.inbox = inbox
        self.service = service
        self._redis = redis
        self._instance = instance
        self._holder = ""
        self._acquire = redis.register_script(scripts.ACQUIRE)
        self._release = redis.register_script(scripts.RELEASE)
        self._commit: Any = redis.register_script(scripts.COMMIT)
        if waiting is not None:
            self._commit = DurableScript(redis, scripts.COMMIT, waiting)
        self._snapshot = redis.register_script(scripts.SNAPSHOT)
        self._set_aside = redis.register_script(scripts.SET_ASIDE)

    async def acquire(self) -> bool:
        """Try to become the active instance; False while another holds the lease."""
        keys = [streams.lease(self.service), streams.fence(self.service)]
        holder = await self._acquire(keys=keys, args=[self._instance, int(LEASE_S * 1000)])
        self._holder = holder.decode() if holder else ""
        return bool(holder)

    async def release(self) -> None:
        """Give the lease back so that a standby need not wait for it to run out."""
        await self._release(keys=[streams.lease(self.service)], args=[self._holder])

    async def holder(self) -> str:
        """Name of the instance that leads now, without its token; empty when there is none."""
        value: Any = await self._redis.get(streams.lease(self.service))
        return value.decode().rpartition("#")[0] if value else ""

    async def load(self) -> SavedState:
        """The saved state of the service; an empty one for a service that never ran."""
        saved: Any = await self._redis.hgetall(streams.state(self.service))
        return SavedState(
            snapshot_id=saved.get(b"id", b"0-0"),
            snapshot=saved.get(b"state"),
            committed=saved.get(b"committed", b"0-0"),
            aside=frozenset(key.removeprefix(b"aside:") for key in saved if key.startswith(b"aside:")),
        )

    async def replay(self, after: bytes, upto: bytes) -> list[Entry]:
        """Up to a batch of entries in (after, upto]."""
        reply: Any = await self._redis.xrange(self.inbox, min=b"(" + after, max=upto, count=MAX_BATCH_ENTRIES)
        return [(entry_id, fields) for entry_id, fields in reply]

    async def read(self, after: bytes, block_ms: int) -> list[Entry]:
        """Up to a batch of entries after an id; waits at most ``block_ms`` for the first."""
        reply: Any = await self._redis.xread({self.inbox: after}, count=MAX_BATCH_ENTRIES, block=block_ms)
        if not reply:
            return []
        # RESP2 answers a list of pairs, RESP3 a map
        entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
        return [(entry_id, fields) for entry_id, fields in entries]

    async def commit(self, committed: bytes, effects: list[Effect]) -> float:
        """Send effects and move the committed id (kept where it is if empty), or do nothing. Answers Redis's time."""
        args: list[bytes | str | int] = [self._holder, int(LEASE_S * 1000), committed]
        for effect in effects:
            match effect:
                case Send(stream, message, to_existing, max_entries):
                    args += ["add-existing" if to_existing else "add", stream, encode(message), max_entries]
                case Drop(key):
                    args += ["drop", key, b"", 0]
                case Solve():
                    pass  # leaves no trace in Redis; the driver runs it after the commit
        reply = await self._fenced(self._commit, [streams.lease(self.service), streams.state(self.service)], args)
        return int(reply[0]) + int(reply[1]) / 1e6

    async def save(self, snapshot_id: bytes, snapshot: bytes, aside: Iterable[bytes]) -> None:
        """Keep a snapshot of the state after ``snapshot_id``, trim the log up to it, forget what was set ``aside``."""
        keys = [streams.lease(self.service), streams.state(self.service), self.inbox]
        marks = [b"aside:" + entry_id for entry_id in aside]
        await self._fenced(self._snapshot, keys, [self._holder, snapshot_id, snapshot, *marks])

    async def set_aside(self, entry: Entry, reason: str) -> None:
        """Move an entry that cannot be handled to the dead letters; replays leave it out from now on."""
        entry_id, fields = entry
        keys = [streams.lease(self.service), streams.state(self.service), streams.DEAD_LETTER]
        args = [self._holder, entry_id, self.inbox, fields.get(FIELD, b""), reason, streams.MAX_DEAD_LETTERS]
        await self._fenced(self._set_aside, keys, args)

    async def _fenced(self, script: Any, keys: list[str], args: list[Any]) -> Any:
        try:
            return await script(keys=keys, args=args)
        except ResponseError as error:
            if "FENCED" in str(error):
                raise FencedError(f"{self.service}: another instance took the lease from {self._holder}") from error
            raise


def entry_time(entry_id: bytes) -> float:
    """Cluster time of an entry in seconds: the id's first half is Redis's clock in milliseconds."""
    return int(entry_id.partition(b"-")[0]) / 1000


def id_order(entry_id: bytes) -> tuple[int, int]:
    """Entry ids compare as pairs of integers."""
    ms, _, seq = entry_id.partition(b"-")
    return int(ms), int(seq)
