"""The log of a response in the background: the tokens that have come, with the events that tell of them.

An entry holds both, so that a process that goes on from the last one has every token whose text was told, and no
other. An entry is a length in four bytes, then MessagePack. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from shared.messages.requests.token_logprob import TokenLogprob

LENGTH_BYTES = 4


class ResponseLogEntry(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What has come since the entry before."""

    first: int
    """Sequence number of its first event."""
    events: list[bytes]
    """As they go out, numbered one by one."""
    token_ids: list[int] = []
    logprobs: list[TokenLogprob] = []
    """One a token, where they were asked for."""
    cached_tokens: int | None = None
    """Of the prompt, as far as it is known."""
    at_s: float = 0.0
    """Unix time at which it was written."""
    is_last: bool = False
    """Nothing follows."""

    @property
    def next(self) -> int:
        """Sequence number of the event that follows."""
        return self.first + len(self.events)


class LogReader:
    """Entries of a log that comes piece by piece."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, piece: bytes) -> list[ResponseLogEntry]:
        """Those that are whole now. `msgspec.MsgspecError` for what is no log."""
        data, place, entries = self._rest + piece, 0, []
        while len(data) - place >= LENGTH_BYTES:
            end = place + LENGTH_BYTES + int.from_bytes(data[place : place + LENGTH_BYTES], "big")
            if end > len(data):
                break
            entries.append(_decoder.decode(data[place + LENGTH_BYTES : end]))
            place = end
        self._rest = data[place:]
        return entries


def written(entry: ResponseLogEntry) -> bytes:
    """As it stands in the log."""
    data = msgspec.msgpack.encode(entry)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def read_log(data: bytes) -> list[ResponseLogEntry]:
    """All entries of a whole log."""
    return LogReader().read(data)


def events_after(entries: Iterable[ResponseLogEntry], number: int) -> Sequence[bytes]:
    """Events of ``entries`` behind the one with this sequence number."""
    return [event for entry in entries for event in entry.events[max(0, number + 1 - entry.first) :]]


_decoder = msgspec.msgpack.Decoder(ResponseLogEntry)
