"""A service's inbox as its log: snapshot, replay, atomic commit. All of the driver's Redis, none of its loop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.bus import scripts, streams
from shared.messages.codec import FIELD, encode
from shared.service.core import Drop, Effect, Send, Solve
from shared.service.log.cluster_clock import ClusterClock
from shared.service.log.durability import DurableScript, Waiting
from shared.service.log.lease import READ_BYTES_PER_S, Lease, hold_s

MAX_BATCH_ENTRIES = 256  # bounds the memory of a batch and the time a commit script blocks Redis
ASIDE, CLOCK = b"aside:", b"clock:"  # marks in the hash of a service's state: see `streams.state`

LogEntry = tuple[bytes, dict[bytes, bytes]]


class LostCommitsError(Exception):
    """Redis has come back without what this instance has read or committed: its core is ahead of the log."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a service left in Redis: its last snapshot, how far effects were sent, and marks of entries since."""

    snapshot_id: bytes = b"0-0"
    snapshot: bytes | None = None
    committed: bytes = b"0-0"
    aside: frozenset[bytes] = field(default_factory=frozenset)
    clock: tuple[float, float] = (0.0, 0.0)
    """Of the `ClusterClock` at the snapshot: offset, time of the newest entry."""
    clock_marks: Mapping[bytes, float] = field(default_factory=dict)
    shared_offset_s: float | None = None
    """By how much the service that wrote last of all reads Redis's clock otherwise."""

    def make_clock(self) -> ClusterClock:
        """The clock as it was at the snapshot, to go on with."""
        return ClusterClock(*self.clock, self.clock_marks)


class CommitLog:
    """Reads the inbox of one service and commits what its core answers, as long as it leads."""

    def __init__(self, redis: Redis, service: str, inbox: str, instance: str, waiting: Waiting | None = None) -> None:
        self.inbox = inbox
        self.service = service
        self.lease = Lease(redis, service, instance)
        self._redis = redis
        self._committed = b"0-0"
        self._commit: Any = redis.register_script(scripts.COMMIT)
        if waiting is not None:
            self._commit = DurableScript(redis, scripts.COMMIT, waiting)
        self._snapshot = redis.register_script(scripts.SNAPSHOT)
        self._set_aside = redis.register_script(scripts.SET_ASIDE)

    @classmethod
    def of(cls, redis: Redis, other: CommitLog) -> CommitLog:
        """The same instance's log in the same term, over another connection."""
        log = cls(redis, other.service, other.inbox, other.lease.instance)
        log.lease.holder = other.lease.holder
        return log

    async def load(self) -> SavedState:
        """The saved state of the service; an empty one for a service that never ran. A standby waits as it takes."""
        state = streams.state(self.service)
        await self.lease.renew(hold_s(await self._redis.hstrlen(state, "state"), READ_BYTES_PER_S))
        saved: Any = await self._redis.hgetall(state)
        shared: Any = await self._redis.get(streams.CLOCK)
        self._committed = saved.get(b"committed", b"0-0")
        offset_s, last_s = saved.get(b"clock", b"0 0").split()
        return SavedState(
            snapshot_id=saved.get(b"id", b"0-0"),
            snapshot=saved.get(b"state"),
            committed=self._committed,
            aside=frozenset(_marked(saved, ASIDE)),
            clock=(float(offset_s), float(last_s)),
            clock_marks={entry_id: float(offset) for entry_id, offset in _marked(saved, CLOCK).items()},
            shared_offset_s=None if shared is None else float(shared),
        )

    async def replay(self, after: bytes, upto: bytes) -> list[LogEntry]:
        """Up to a batch of entries in (after, upto]."""
        reply: Any = await self._redis.xrange(self.inbox, min=b"(" + after, max=upto, count=MAX_BATCH_ENTRIES)
        return [(entry_id, fields) for entry_id, fields in reply]

    async def read(self, after: bytes, block_ms: int) -> list[LogEntry]:
        """Up to a batch of entries after an id; waits at most ``block_ms`` for the first."""
        reply: Any = await self._redis.xread({self.inbox: after}, count=MAX_BATCH_ENTRIES, block=block_ms)
        if not reply:
            return []
        # RESP2 answers a list of pairs, RESP3 a map
        entries = next(iter(reply.values()))[0] if isinstance(reply, dict) else reply[0][1]
        return [(entry_id, fields) for entry_id, fields in entries]

    async def redis_time(self) -> float:
        """Redis's clock, in seconds."""
        seconds, microseconds = await self._redis.time()
        return float(seconds + microseconds / 1e6)

    async def commit(
        self, last: LogEntry | None, effects: list[Effect], clock_marks: Mapping[bytes, float] | None = None
    ) -> float:
        """Send effects and move the committed id to the last entry read (if any), or do nothing. Answers Redis's time.

        ``clock_marks``: of the entries up to that one, those from which on Redis's clock is read otherwise. Raises
        `FencedError` if another instance leads, `LostCommitsError` if Redis does not know what was read or committed.
        """
        marks = [part for mark, offset in (clock_marks or {}).items() for part in (CLOCK + mark, repr(offset))]
        committed, fields = last or (b"", {})
        digest = hashlib.sha1(fields.get(FIELD, b""), usedforsecurity=False).hexdigest()
        args: list[bytes | str | int] = [*self.lease.terms, self._committed, committed, digest, len(marks) // 2, *marks]
        for effect in effects:
            match effect:
                case Send(stream, message, to_existing, max_entries):
                    args += ["add-existing" if to_existing else "add", stream, encode(message), max_entries]
                case Drop(key):
                    args += ["drop", key, b"", 0]
                case Solve():
                    pass  # leaves no trace in Redis; the driver runs it after the commit
        beat, state = streams.beat(self.service), streams.state(self.service)
        keys = [*self.lease.keys, beat, state, streams.CLOCK, self.inbox]
        reply = await self._not_behind(self._commit, keys, args)
        self._committed = committed or self._committed
        return int(reply[0]) + int(reply[1]) / 1e6

    async def save(self, snapshot_id: bytes, snapshot: bytes, clock: ClusterClock, aside: Iterable[bytes]) -> None:
        """Keep a snapshot of the state after ``snapshot_id``, trim the log up to it, forget the marks before it.

        ``aside``: of the entries that it covers, those that were set aside.
        """
        keys = [*self.lease.keys, streams.state(self.service), self.inbox]
        marks = [*(ASIDE + entry_id for entry_id in aside), *(CLOCK + entry_id for entry_id in clock.marked)]
        clock_state = f"{clock.offset_s!r} {clock.last_s!r}"
        args = [self.lease.holder, snapshot_id, snapshot, clock_state, self._committed, *marks]
        await self._not_behind(self._snapshot, keys, args)
        clock.forget(clock.marked)

    async def set_aside(self, entry: LogEntry, reason: str) -> None:
        """Move an entry that cannot be handled to the dead letters; replays leave it out from now on."""
        entry_id, fields = entry
        keys = [*self.lease.keys, streams.state(self.service), streams.DEAD_LETTER]
        data, said = fields.get(FIELD, b"")[: streams.MAX_LETTER_BYTES], reason[: streams.MAX_LETTER_BYTES]
        args = [self.lease.holder, entry_id, self.inbox, data, said, streams.MAX_DEAD_LETTERS]
        await self.lease.fenced(self._set_aside, keys, args)

    async def _not_behind(self, script: Any, keys: list[str], args: list[Any]) -> Any:
        try:
            return await self.lease.fenced(script, keys, args)
        except ResponseError as error:
            if "BEHIND" in str(error):
                raise LostCommitsError(f"{self.service}: {error}, after {self._committed.decode()}") from error
            raise


def _marked(saved: Mapping[bytes, bytes], kind: bytes) -> dict[bytes, bytes]:
    """The marks of a kind, by entry id."""
    return {key.removeprefix(kind): value for key, value in saved.items() if key.startswith(kind)}
