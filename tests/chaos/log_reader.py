"""What Redis kept: its log, read as the entries that the checkers look at."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from shared.messages.codec import FIELD, UndecodableError, decode
from tests.chaos.history import Entry
from tests.chaos.resp import commands


def read_log(data: bytes, starts: Sequence[int]) -> Iterator[Entry]:
    """Writes in the order in which they took effect; ``starts``: bytes of the log as each of Redis's lives began."""
    transaction, is_inside = 0, False
    for order, (end, command) in enumerate(commands(data)):
        verb = command[0].upper()
        if verb == b"MULTI" or not is_inside:
            transaction += 1
        is_inside = verb == b"MULTI" or (is_inside and verb != b"EXEC")
        life = bisect_right(list(starts), end - 1) - 1
        if (entry := _entry(verb, command, order, transaction, life)) is not None:
            yield entry


def _entry(verb: bytes, command: list[bytes], order: int, transaction: int, life: int) -> Entry | None:
    def made(key: bytes, value: bytes = b"", entry_id: bytes = b"", data: bytes | None = None) -> Entry:
        return Entry(
            order=order,
            transaction=transaction,
            life=life,
            verb=verb.decode(),
            key=key.decode(),
            value=value.decode(errors="replace"),
            entry_id=entry_id.decode(),
            message={} if data is None else _message(data),
        )

    match verb:
        case b"XADD":
            entry_id, fields = fields_of(command)
            return made(command[1], entry_id=entry_id, data=fields.get(FIELD))
        case b"HSET":
            fields = dict(zip(command[2::2], command[3::2], strict=False))
            return made(command[1], fields.get(b"committed", b""))
        case b"SET" | b"DEL" | b"UNLINK":
            return made(command[1])
        case _:
            return None


def transactions(data: bytes) -> Iterator[list[list[bytes]]]:
    """Commands that took effect together."""
    inside: list[list[bytes]] | None = None
    for _, command in commands(data):
        match command[0].upper():
            case b"MULTI":
                inside = []
            case b"EXEC":
                yield inside or []
                inside = None
            case _ if inside is not None:
                inside.append(command)
            case _:
                yield [command]


def fields_of(command: list[bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """Id and fields of an ``XADD``, whatever limits stand before them."""
    place = next(number for number, part in enumerate(command[2:], 2) if _is_id(part))
    return command[place], dict(zip(command[place + 1 :: 2], command[place + 2 :: 2], strict=True))


def _is_id(part: bytes) -> bool:
    ms, _, sequence = part.partition(b"-")
    return ms.isdigit() and sequence.isdigit()


def _message(data: bytes) -> dict[str, object]:
    """As a mapping; empty for what nobody can decode."""
    try:
        values: dict[str, object] = msgspec.to_builtins(decode(data))
    except (UndecodableError, ValueError, RecursionError):
        return {}
    return values
