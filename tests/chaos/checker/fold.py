"""I3 again, and sharper: each service's inbox is folded once more, and every batch must have sent just what comes out.

Redis's log has all entries, and what was committed for which of them. A batch that was sent twice, in part, by somebody
who was fenced, or by a core that was ahead of its log, differs from the fold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shared.bus import streams
from shared.messages.codec import FIELD, UndecodableError, decode_entry, encode
from shared.messages.memory.blocks import Located, TellBlocks
from shared.messages.message import Tick
from shared.service.core import Core, Drop, Effect, Send
from shared.service.log.cluster_clock import ClusterClock, id_order
from shared.service.log.commit_log import ASIDE, CLOCK
from tests.chaos.history import Difference
from tests.chaos.log_reader import fields_of, transactions

Written = tuple[str, str, bytes]
"""What a write leaves in the log: ``XADD``, ``SET`` or ``DEL``, the key, the message."""

SOFT = (Located, TellBlocks)
"""What is sent out of the index of cached blocks, which is in no snapshot: a service that began again knows less."""

OTHERS_KEYS = (streams.payload(""),)
"""Keys that gateways set, and that services drop."""

_TICK = encode(Tick())
MAX_DIFFERENCES = 5  # of a service: once it differs, all that follows may


@dataclass
class _Service:
    """A service's log, as far as it has been read."""

    name: str
    inbox: str
    core: Core
    aside: set[bytes]
    entries: list[tuple[bytes, dict[bytes, bytes]]] = field(default_factory=list)
    num_folded: int = 0
    num_differences: int = 0
    clock: ClusterClock = field(default_factory=ClusterClock)

    def fold(self, upto: bytes, marks: Mapping[bytes, float]) -> list[Effect]:
        """Effects of all entries up to an id."""
        self.clock = ClusterClock(self.clock.offset_s, self.clock.last_s, marks)
        effects: list[Effect] = []
        while self.num_folded < len(self.entries) and id_order(self.entries[self.num_folded][0]) <= id_order(upto):
            entry_id, fields = self.entries[self.num_folded]
            self.num_folded += 1
            if entry_id in self.aside:
                continue
            try:
                message = decode_entry(fields)
            except UndecodableError:
                continue  # its mark was lost with the tail of a log; it never reached a core either
            effects += self.core.handle(message, self.clock.replay(entry_id))
        return effects


def refold(log: bytes, cores: Mapping[str, tuple[str, Core]]) -> Iterator[Difference]:
    """Where a service has sent something else than its inbox says. ``cores``: inboxes and fresh cores by service."""
    state_keys = {streams.state(name): name for name in cores}
    aside = _set_aside(log, state_keys)
    services = {name: _Service(name, inbox, core, aside[name]) for name, (inbox, core) in cores.items()}
    by_inbox = {service.inbox: service for service in services.values()}
    existing: set[str] = set()
    for commands in transactions(log):
        batch = _read_batch(commands, state_keys)
        for key, entry in batch.entries:
            if key in by_inbox:
                by_inbox[key].entries.append(entry)
        for name, upto in batch.committed.items():
            service = services[name]
            what = _differs(service.fold(upto, batch.marks), batch.written, service.inbox, set(existing))
            if what and service.num_differences < MAX_DIFFERENCES:
                service.num_differences += 1
                yield Difference(service=name, committed=upto.decode(), what=what)
        for verb, key, _ in batch.written:
            existing.discard(key) if verb == "DEL" else existing.add(key)


@dataclass
class _Batch:
    """What one transaction wrote."""

    written: list[Written] = field(default_factory=list)
    entries: list[tuple[str, tuple[bytes, dict[bytes, bytes]]]] = field(default_factory=list)
    marks: dict[bytes, float] = field(default_factory=dict)
    committed: dict[str, bytes] = field(default_factory=dict)
    """By service, how far its inbox was handled with this."""


def _read_batch(commands: list[list[bytes]], state_keys: Mapping[str, str]) -> _Batch:
    batch = _Batch()
    for command in commands:
        verb, key = command[0].upper(), command[1].decode(errors="replace") if len(command) > 1 else ""
        if verb == b"XADD":
            entry_id, fields = fields_of(command)
            batch.written.append(("XADD", key, fields.get(FIELD, b"")))
            batch.entries.append((key, (entry_id, fields)))
        elif verb in (b"DEL", b"UNLINK"):
            batch.written += [("DEL", name.decode(), b"") for name in command[1:]]
        elif verb == b"SET" and key.startswith(OTHERS_KEYS):
            batch.written.append(("SET", key, b""))
        elif verb == b"HSET" and key in state_keys:
            values = dict(zip(command[2::2], command[3::2], strict=True))
            batch.marks |= {
                name[len(CLOCK) :]: float(value) for name, value in values.items() if name.startswith(CLOCK)
            }
            if b"committed" in values:
                batch.committed[state_keys[key]] = values[b"committed"]
    return batch


def _set_aside(log: bytes, state_keys: Mapping[str, str]) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {name: set() for name in state_keys.values()}
    for commands in transactions(log):
        for command in commands:
            if command[0].upper() == b"HSET" and (key := command[1].decode()) in state_keys:
                found[state_keys[key]] |= {name[len(ASIDE) :] for name in command[2::2] if name.startswith(ASIDE)}
    return found


def _differs(effects: list[Effect], written: list[Written], inbox: str, existing: set[str]) -> str:
    """What was sent and should not have been, or the reverse; a `Tick` is the driver's own.

    Nothing is logged where what should be dropped is not there, or a stream that only its owner makes.
    """
    left = [one for one in written if one != ("XADD", inbox, _TICK) and not _is_soft(one[2])]
    for effect in effects:
        match effect:
            case Send(_, message, _) if isinstance(message, SOFT):
                continue
            case Send(stream, message, to_existing):
                wanted, leaves_no_trace = ("XADD", stream, encode(message)), to_existing and stream not in existing
            case Drop(key):
                wanted, leaves_no_trace = ("DEL", key, b""), key not in existing
            case _:
                continue
        if leaves_no_trace:
            continue
        if not left or left[0] != wanted:
            instead = f"{left[0][0]} {left[0][1]}: {left[0][2][:80]!r}" if left else "nothing"
            return f"did not send {type(effect).__name__} to {wanted[1]}: {wanted[2][:80]!r}, but {instead}"
        verb, key, _ = left.pop(0)
        existing.discard(key) if verb == "DEL" else existing.add(key)
    return f"sent to {left[0][1]} what its inbox does not say: {left[0][2][:80]!r}" if left else ""


def _is_soft(data: bytes) -> bool:
    try:
        return isinstance(decode_entry({FIELD: data}), SOFT)
    except UndecodableError:
        return False
