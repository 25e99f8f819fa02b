"""A Redis in memory: an order of atomic operations with a log, of which the tail can be lost.

Each method is one command, transaction or script as the live processes send it (`shared.bus.scripts`): all of it
happens, or nothing. Whether an answer arrives is the network's affair (`process.Process.ask`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shared.bus import streams
from shared.messages.memory.blocks import Locate
from shared.messages.message import Message
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Attempt, Enqueued, Pulled, Submit
from shared.service.core import Drop, Effect, Send
from tests.schedules.agenda import Agenda, Signal
from tests.schedules.keyspace import NO_ID, EntryId, Keyspace, Op, Stream

BEGIN_S = 10_000.0  # of its wall clock: steps back never lead before 1970, where all ids would be the same


class RedisAwayError(Exception):
    """No answer, or none that says whether it was done."""


class RedisFullError(RedisAwayError):
    """It has no memory for this, and has done nothing."""


class LostCommitsError(RedisAwayError):
    """It does not know of the last commit, or of an entry that was read: the core is built anew."""


class FencedError(Exception):
    """Another instance leads."""


class RedisModel:
    """One database, over all its lives."""

    def __init__(self, agenda: Agenda) -> None:
        self.keys = Keyspace()
        self.is_up = True
        self.is_full = False
        self.run_id = 1
        self.clock_step_s = 0.0
        """How far its wall clock is from virtual time."""
        self._agenda = agenda
        self._log: list[tuple[float, list[Op]]] = []
        self._signals: dict[str, Signal] = {}

    # --- its lives --------------------------------------------------------------------------------------------------

    @property
    def num_logged(self) -> int:
        """Transactions so far."""
        return len(self._log)

    def num_logged_by(self, time_s: float) -> int:
        """Transactions that had been done by then."""
        number = len(self._log)
        while number and self._log[number - 1][0] > time_s:
            number -= 1
        return number

    def stop(self) -> None:
        """It answers nobody."""
        self.is_up = False

    def start(self, num_kept: int | None = None) -> None:
        """A new run, with the first ``num_kept`` transactions; all of them where it is left out."""
        if num_kept is not None:
            del self._log[num_kept:]
            self.keys = Keyspace()
            for _, ops in self._log:
                for op in ops:
                    self.keys.apply(op)
        self.is_up = True
        self.run_id += 1
        for signal in list(self._signals.values()):
            signal.notify()  # who waited for entries hears that the connection has ended

    # --- what all commands are made of --------------------------------------------------------------------------------

    def time_s(self) -> float:
        """Its wall clock."""
        return BEGIN_S + self._agenda.now + self.clock_step_s

    def signal(self, key: str) -> Signal:
        """Notified with each entry of a stream."""
        signal = self._signals.get(key)
        if signal is None:
            signal = self._signals[key] = Signal()
        return signal

    def _do(self, ops: list[Op]) -> None:
        for op in ops:
            self.keys.apply(op)
        self._log.append((self._agenda.now, ops))
        for op in ops:
            if op[0] == "add" and op[1] in self._signals:
                self._signals[op[1]].notify()

    def _adder(self) -> Callable[[str, Message], Op]:
        """Draws ids for the entries of one transaction."""
        drawn: dict[str, EntryId] = {}
        now_ms = int(self.time_s() * 1000)

        def add(key: str, message: Message) -> Op:
            stream = self.keys.streams.get(key)
            last = drawn.get(key) or (stream.last_id if stream is not None else NO_ID)
            entry_id = (now_ms, 0) if now_ms > last[0] else (last[0], last[1] + 1)
            drawn[key] = entry_id
            return ("add", key, entry_id, message)

        return add

    # --- streams ----------------------------------------------------------------------------------------------------

    def add(self, *messages: tuple[str, Message]) -> EntryId:
        """Append, in one transaction; answers the last id."""
        add = self._adder()
        ops = [add(key, message) for key, message in messages]
        self._do(ops)
        entry_id: EntryId = ops[-1][2]
        return entry_id

    def read(self, key: str, after: EntryId, num_entries: int) -> list[tuple[EntryId, Message]]:
        """What stands behind a position now."""
        stream = self.keys.streams.get(key)
        return stream.after(after, num_entries) if stream is not None and stream.last_id > after else []

    def has_news(self, key: str, after: EntryId) -> bool:
        """Whether a blocking read would have its answer at once; one of a server that is away has its error."""
        stream = self.keys.streams.get(key)
        return not self.is_up or (stream is not None and stream.last_id > after)

    def newest(self, key: str) -> EntryId:
        """Id of the newest entry that is there (XREVRANGE)."""
        stream = self.keys.streams.get(key)
        return max(stream.entries, default=NO_ID) if stream is not None else NO_ID

    def last_id(self, key: str) -> EntryId | None:
        """Id of the newest entry that ever was (XINFO); None where there is no such stream."""
        stream = self.keys.streams.get(key)
        return stream.last_id if stream is not None else None

    # --- gateways ---------------------------------------------------------------------------------------------------

    def submit(self, payload: Payload, submit: Submit) -> None:
        """Payload and `Submit`. A first attempt asks for memory, and the KV manager with it."""
        if self.is_full and submit.attempt == 0:
            raise RedisFullError
        key, add = streams.payload(payload.request_id), self._adder()
        question = Locate.of(submit) if submit.attempt == 0 else None
        asked = [add(streams.KV, question)] if question is not None else []
        self._do([("put", key, payload), add(streams.QUEUE, submit), *asked])

    def release(self, request_id: str, message: Message | None) -> None:
        """Delete the payload, and say so."""
        ops: list[Op] = [("drop", streams.payload(request_id))]
        self._do([*ops, self._adder()(streams.QUEUE, message)] if message is not None else ops)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def pull(
        self, gid: str, num_entries: int, node: str, epoch: str, number: int
    ) -> list[tuple[EntryId, Enqueued, Payload | None]]:
        """As `shared.bus.scripts.PULL`."""
        key = streams.group(gid)
        stream = self.keys.streams.get(key)
        found = stream.after(stream.delivered, num_entries) if stream is not None else []
        if not found:
            return []
        entries = [(entry_id, entry) for entry_id, entry in found if isinstance(entry, Enqueued)]
        attempts = [Attempt(entry.request_id, entry.attempt) for _, entry in entries]
        pulled = Pulled(node=node, epoch=epoch, group=gid, requests=attempts, number=number)
        self._do([("deliver", key, epoch, [entry_id for entry_id, _ in entries]), self._adder()(streams.QUEUE, pulled)])
        return [
            (entry_id, entry, self.keys.values.get(streams.payload(entry.request_id))) for entry_id, entry in entries
        ]

    def publish(
        self,
        tokens: Sequence[tuple[str, Message]],
        acknowledged: Sequence[tuple[str, EntryId]],
        told: Sequence[Message],
    ) -> None:
        """As the agent's `NodeBus.publish`: streams of gateways that are gone are not made again."""
        add = self._adder()
        ops = [add(key, message) for key, message in tokens if key in self.keys.streams]
        ops += [("acknowledge", streams.group(gid), entry_id) for gid, entry_id in acknowledged]
        self._do([*ops, *(add(streams.QUEUE, message) for message in told)])

    def put(self, key: str, value: object) -> None:
        """SET."""
        self._do([("put", key, value)])

    # --- services ---------------------------------------------------------------------------------------------------

    def acquire(self, service: str, instance: str, watched: str) -> tuple[bool, str]:
        """As `shared.bus.scripts.ACQUIRE`: whether it leads now, and as whom; or the leader's newest sign of life."""
        held: str = self.keys.values.get(streams.lease(service), "")
        if held and held.partition("#")[0] != instance and (sign := self._sign(service, held)) != watched:
            return False, sign
        token = self.keys.values.get(streams.fence(service), 0) + 1
        holder = f"{instance}#{token}"
        ops: list[Op] = [("put", streams.fence(service), token), ("put", streams.lease(service), holder)]
        self._do([*ops, self._beat(service)])
        return True, holder

    def _sign(self, service: str, holder: str) -> str:
        return f"{holder} {self.keys.values.get(streams.beat(service), 0)}"

    def _beat(self, service: str) -> Op:
        return ("put", streams.beat(service), self.keys.values.get(streams.beat(service), 0) + 1)

    def _fenced(self, service: str, holder: str) -> None:
        if self.keys.values.get(streams.lease(service), "") != holder:
            raise FencedError

    def _not_behind(self, service: str, committed: EntryId) -> None:
        if self.keys.hashes.get(streams.state(service), {}).get("committed", NO_ID) != committed:
            raise LostCommitsError

    def renew(self, service: str, holder: str) -> None:
        """As `shared.bus.scripts.RENEW`."""
        self._fenced(service, holder)
        self._do([self._beat(service)])

    def load(self, service: str) -> tuple[dict[Any, Any], float | None]:
        """What a service left, and the offset that all of them share."""
        return dict(self.keys.hashes.get(streams.state(service), {})), self.keys.values.get(streams.CLOCK)

    def commit(
        self,
        service: str,
        holder: str,
        inbox: str,
        before: EntryId,
        last: tuple[EntryId, Message] | None,
        effects: list[Effect],
        marks: dict[bytes, float],
    ) -> float:
        """As `shared.bus.scripts.COMMIT`."""
        self._fenced(service, holder)
        self._not_behind(service, before)
        if last is not None and self.keys.streams.get(inbox, Stream()).entries.get(last[0]) != last[1]:
            raise LostCommitsError
        state = streams.state(service)
        ops: list[Op] = [self._beat(service)]
        add = self._adder()
        dropped: set[str] = set()
        for effect in effects:
            match effect:
                case Send(stream, message, to_existing):
                    exists = stream in self.keys.streams and stream not in dropped
                    if exists or not to_existing:
                        ops.append(add(stream, message))
                case Drop(key):
                    ops.append(("drop", key))
                    dropped.add(key)
        for entry_id, offset_s in marks.items():
            ops += [("put_field", state, entry_id, offset_s), ("put", streams.CLOCK, offset_s)]
        if last is not None:
            ops.append(("put_field", state, "committed", last[0]))
        self._do(ops)
        return self.time_s()

    def save(
        self,
        service: str,
        holder: str,
        inbox: str,
        before: EntryId,
        snapshot: tuple[EntryId, bytes, float, float],
        marked: list[bytes],
    ) -> None:
        """As `shared.bus.scripts.SNAPSHOT`."""
        self._fenced(service, holder)
        self._not_behind(service, before)
        state = streams.state(service)
        forgotten: list[Op] = [("drop_field", state, mark) for mark in marked]
        self._do([("put_field", state, "snapshot", snapshot), *forgotten, ("trim", inbox, snapshot[0])])

    # --- what judges look at ------------------------------------------------------------------------------------------

    def of_kind(self, prefix: str) -> dict[str, Stream]:
        """Streams whose keys begin alike."""
        return {key: stream for key, stream in self.keys.streams.items() if key.startswith(prefix)}
