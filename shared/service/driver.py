"""The loop of every service: a core decides, this reads its inbox and commits what it answers.

State is a fold over the inbox. After any failure the driver forgets its core and builds it again from snapshot and log:
a core that is ahead of the log never goes on. So a kill at any point loses nothing and sends nothing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog
from prometheus_client import Counter, Gauge, Histogram
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.bus import streams
from shared.errors import OperatorError
from shared.messages.codec import UndecodableError, decode_entry
from shared.messages.message import Message, Tick
from shared.service.background.solver import Solver
from shared.service.core import Core, Effect, Send, Solve
from shared.service.log.cluster_clock import ClusterClock, id_order, id_time
from shared.service.log.commit_log import MAX_BATCH_ENTRIES, CommitLog, LogEntry, LostCommitsError
from shared.service.log.durability import Waiting
from shared.service.log.lease import RENEW_S, WRITE_BYTES_PER_S, FencedError, hold_s
from shared.service.log.lease_keeper import HANG_S, LeaseKeeper
from shared.telemetry.telemetry import record_handled
from shared.telemetry.trace_context import trace_id

SNAPSHOT_EVERY_ENTRIES = 5_000
SNAPSHOT_BYTES_PER_ENTRY = 1_000  # a large state is written less often: each entry pays for so much of it at most
REPLAY_S = 2.0  # but never less often than this: what was handled since takes as long again when it is replayed
BREATH_S = 0.05  # a replay lets the rest of the process (health, signals) have its turn so often
BACKOFF_S = 0.2
MAX_BACKOFF_S = 1.0  # a Redis that is back has its services back a second later

ENTRIES = Counter("treadle_inbox_entries_total", "Inbox entries handled", ["service"])
SET_ASIDE = Counter("treadle_inbox_set_aside_total", "Entries moved to the dead letters", ["service"])
REBUILDS = Counter("treadle_core_rebuilds_total", "Times the core was built from snapshot and log", ["service"])
LAG = Gauge("treadle_inbox_lag_seconds", "Age of the newest handled entry when it was committed", ["service"])
LEASE_HELD = Gauge("treadle_lease_held", "1 while this instance leads its service, 0 while it stands by", ["service"])
COMMIT_S = Histogram(
    "treadle_commit_seconds",
    "Time of one atomic commit",
    ["service"],
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 1),
)

log = structlog.get_logger()

C = TypeVar("C", bound=Core)


class HandlerError(Exception):
    """A core raised on an entry, which is set aside now; the core's state can no longer be trusted."""


class SnapshotError(OperatorError):
    """The state that a service left in Redis is none that this version can go on with."""


@dataclass(slots=True)
class _Leadership(Generic[C]):
    """One term as active instance: the core and how far it is."""

    core: C
    last_id: bytes
    aside: set[bytes]
    clock: ClusterClock
    snapshot_bytes: int = 0
    num_since_snapshot: int = 0
    handled_s: float = 0.0
    """Time that the core has taken for the entries since the last snapshot."""
    is_replaying: bool = True
    tick_sent: bool = False
    traced: list[tuple[Message, float]] = field(default_factory=list)
    """Messages of traced requests in this batch, with Redis's time of their entries."""

    def is_due(self) -> bool:
        return self.core.wake_at is not None and self.core.wake_at <= self.clock.now(time.monotonic())

    def needs_snapshot(self) -> bool:
        return self.handled_s >= REPLAY_S or self.num_since_snapshot >= snapshot_interval(self.snapshot_bytes)


class Driver(Generic[C]):
    """Runs one service's core over Redis until ``stop`` is set."""

    def __init__(
        self,
        make_core: Callable[[], C],
        redis: Redis,
        *,
        service: str,
        inbox: str,
        instance: str,
        reconnect: Callable[[], Redis],
        solver: Solver | None = None,
        hang_s: float = HANG_S,
        waiting: Waiting | None = None,
    ) -> None:
        """``reconnect`` makes another client like ``redis``; what keeps the core busy for ``hang_s`` is set aside."""
        self._make_core = make_core
        self._log = CommitLog(redis, service, inbox, instance, waiting)
        self._keeper = LeaseKeeper(reconnect, self._log, hang_s)
        self._service = service
        self._instance = instance
        self._solver = solver
        self._term: _Leadership[C] | None = None
        self._stands_by = False
        LEASE_HELD.labels(service).set(0)
        for counter in (ENTRIES, SET_ASIDE, REBUILDS):
            counter.labels(service)  # is there from the start, so that the first event is an increase

    @property
    def stands_by(self) -> bool:
        """Whether another instance held the lease when this one asked last: it has nothing to do, and is ready to."""
        return self._stands_by

    @property
    def core(self) -> C | None:
        """The core while this instance is active and its state is whole; None otherwise."""
        return self._term.core if self._term else None

    async def run(self, stop: asyncio.Event) -> None:
        """Lead, stand by, recover; returns when ``stop`` is set. Raises `FencedError` for a doubled instance name."""
        backoff_s = BACKOFF_S
        try:
            while not stop.is_set():
                try:
                    await self._serve(stop)
                    backoff_s = BACKOFF_S
                except (RedisError, OSError, LostCommitsError) as error:
                    self._stands_by = False  # who leads is not known now
                    log.warning("redis failed, rebuilding", service=self._service, error=str(error), retry_s=backoff_s)
                    await _pause(stop, backoff_s)
                    backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
        finally:
            self._keeper.close()

    async def _serve(self, stop: asyncio.Event) -> None:
        """One term as active instance, or one wait as standby; returns when there is a reason to begin again."""
        self._stands_by = not await self._log.lease.acquire()
        if self._stands_by:
            return await _pause(stop, RENEW_S)
        try:
            with self._keeper.keeping():
                await self._begin()
                await self._lead(stop)
        except HandlerError as error:
            log.error("core failed, rebuilding without the entry", service=self._service, error=str(error))
        except FencedError:
            if await self._log.lease.leader() == self._instance:
                raise  # two processes under one name would take the lease from each other for ever
            log.warning("lease lost, standing by", service=self._service)
        finally:
            self._term = None
            LEASE_HELD.labels(self._service).set(0)

    def _restore(self, core: C, snapshot: bytes) -> None:
        try:
            core.restore(snapshot)
        except Exception as error:  # whatever a decoder raises, the bytes are at fault
            raise SnapshotError(
                f"the state of {self._service} in Redis (key {streams.state(self._service)}) cannot be read by this "
                f"version: {type(error).__name__}: {error}; start the version that wrote it and let it finish what it "
                "has accepted, or delete that key to give it up, and start again"
            ) from error

    async def _begin(self) -> None:
        """Build the core: snapshot, then the log up to the committed id, whose effects were sent before.

        Raises `SnapshotError` for a snapshot that is not this version's.
        """
        saved = await self._log.load()
        core = self._make_core()
        if saved.snapshot is not None:
            self._restore(core, saved.snapshot)
        term = _Leadership(core, saved.snapshot_id, set(saved.aside), saved.make_clock(), len(saved.snapshot or b""))
        breathed_s = time.monotonic()
        while id_order(term.last_id) < id_order(saved.committed):
            entries = await self._log.replay(term.last_id, saved.committed)
            if not entries:
                break
            for entry in entries:
                await self._fold(term, entry)
                if time.monotonic() - breathed_s >= BREATH_S:
                    await asyncio.sleep(0)
                    breathed_s = time.monotonic()
            term.num_since_snapshot += len(entries)
        term.traced.clear()  # handled in an earlier life
        term.is_replaying = False
        term.last_id = max(term.last_id, saved.committed, key=id_order)
        term.clock.begin(await self._log.redis_time(), time.monotonic(), saved.shared_offset_s)
        self._term = term
        LEASE_HELD.labels(self._service).set(1)
        REBUILDS.labels(self._service).inc()
        log.info("active", service=self._service, committed=saved.committed.decode(), replayed=term.num_since_snapshot)

    async def _lead(self, stop: asyncio.Event) -> None:
        term = self._term
        assert term is not None
        while not stop.is_set():
            entries = await self._log.read(term.last_id, self._block_ms(term))
            effects: list[Effect] = []
            for entry in entries:
                effects += await self._fold(term, entry)
            if len(entries) < MAX_BATCH_ENTRIES:  # that was all: a tick that was not in it has been trimmed
                term.tick_sent = False
            await self._commit(term, entries, effects)
            if term.needs_snapshot():
                await self._save(term)
        await self._save(term)
        await self._log.lease.release()

    async def _commit(self, term: _Leadership[C], entries: list[LogEntry], effects: list[Effect]) -> None:
        """Send the effects of a batch; without any, still renew the lease."""
        if term.is_due() and not term.tick_sent:
            effects.append(Send(self._log.inbox, Tick()))  # time that passes is a message like any other
            term.tick_sent = True
        started = time.monotonic()
        redis_s = await self._log.commit(entries[-1] if entries else None, effects, term.clock.take_marks())
        ended = time.monotonic()
        self._keeper.note_sign()
        term.clock.compare(redis_s, started, ended)
        COMMIT_S.labels(self._service).observe(ended - started)
        if entries:
            term.num_since_snapshot += len(entries)
            ENTRIES.labels(self._service).inc(len(entries))
            LAG.labels(self._service).set(max(0.0, term.clock.now(ended) - term.clock.last_s))
        for message, arrived_s in term.traced:
            record_handled(self._service, message, arrived_s, redis_s)
        term.traced.clear()
        for effect in effects:
            if isinstance(effect, Solve):
                assert self._solver is not None, f"{self._service} asks to solve but was given no solver"
                self._solver.submit(effect.problem)

    async def _fold(self, term: _Leadership[C], entry: LogEntry) -> list[Effect]:
        """One entry into the core; its id is its time, the same at every replay.

        What cannot be decoded never reached the core: it is set aside and the core goes on. What makes the core raise
        is set aside too, but the core may be half changed: `HandlerError` has it built again without that entry.
        """
        entry_id, fields = entry
        term.last_id = entry_id
        if entry_id in term.aside:
            return []
        began_s = time.monotonic()
        try:
            message = decode_entry(fields)
        except UndecodableError as error:
            await self._set_aside(term, entry, f"undecodable: {error}")
            return []
        is_tick = isinstance(message, Tick)
        if is_tick:
            term.tick_sent = False
        if message.traceparent:
            term.traced.append((message, id_time(entry_id)))
        clock = term.clock
        now = clock.replay(entry_id) if term.is_replaying else clock.read(entry_id, began_s, is_tick=is_tick)
        try:
            with self._keeper.handling(entry):
                effects = term.core.handle(message, now)
        except Exception as error:
            log.exception(
                "core raised",
                service=self._service,
                entry=entry_id.decode(),
                message=type(message).__name__,
                trace_id=trace_id(message.traceparent),
            )
            await self._set_aside(term, entry, f"{type(error).__name__}: {error}")
            raise HandlerError(f"entry {entry_id.decode()}: {error}") from error
        term.handled_s += time.monotonic() - began_s
        return effects

    async def _set_aside(self, term: _Leadership[C], entry: LogEntry, reason: str) -> None:
        log.error("entry set aside", service=self._service, entry=entry[0].decode(), reason=reason)
        await self._log.set_aside(entry, reason)
        term.aside.add(entry[0])
        SET_ASIDE.labels(self._service).inc()

    async def _save(self, term: _Leadership[C]) -> None:
        covered = {entry_id for entry_id in term.aside if id_order(entry_id) <= id_order(term.last_id)}
        await self._log.lease.renew(hold_s(term.snapshot_bytes, WRITE_BYTES_PER_S))
        snapshot = term.core.snapshot()
        await self._log.save(term.last_id, snapshot, term.clock, covered)
        self._keeper.note_sign()
        term.snapshot_bytes = len(snapshot)
        term.aside -= covered  # the log is trimmed up to here: those entries will not be read again
        term.num_since_snapshot, term.handled_s = 0, 0.0

    def _block_ms(self, term: _Leadership[C]) -> int:
        """Until the core wants to wake, but no longer than a sign of life may take; never 0: that blocks for ever."""
        due_s = RENEW_S
        if term.core.wake_at is not None and not term.tick_sent:
            due_s = min(due_s, term.core.wake_at - term.clock.now(time.monotonic()))
        return max(1, int(due_s * 1000) + 1)


def snapshot_interval(num_bytes: int) -> int:
    """Entries between two snapshots of a state of this size at most, so that logs of what costs nothing stay short."""
    return max(SNAPSHOT_EVERY_ENTRIES, num_bytes // SNAPSHOT_BYTES_PER_ENTRY)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, but not beyond ``stop``."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
