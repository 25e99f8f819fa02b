"""What is in a Redis: streams with their group, values, hashes. Only operations change it, so a log can repeat them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shared.messages.message import Message

EntryId = tuple[int, int]
NO_ID: EntryId = (0, 0)


@dataclass(slots=True)
class Stream:
    """Entries by id, in order, and the consumer group `streams.CONSUMER_GROUP`."""

    entries: dict[EntryId, Message] = field(default_factory=dict)
    last_id: EntryId = NO_ID
    """Of the newest entry that ever was."""
    delivered: EntryId = NO_ID
    """The group has been given all up to here."""
    pending: dict[EntryId, str] = field(default_factory=dict)
    """By entry, the consumer that works on it."""

    def after(self, position: EntryId, num_entries: int) -> list[tuple[EntryId, Message]]:
        """The next entries behind a position."""
        found = []
        for entry_id, message in self.entries.items():
            if entry_id > position:
                found.append((entry_id, message))
                if len(found) == num_entries:
                    break
        return found


Op = tuple[Any, ...]
"""Name of a method of `Keyspace`, and its arguments."""


class Keyspace:
    """All keys. Each method is one operation, and does the same whenever it is repeated."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.values: dict[str, Any] = {}
        self.hashes: dict[str, dict[Any, Any]] = {}

    def apply(self, op: Op) -> None:
        """Carry out one operation."""
        getattr(self, op[0])(*op[1:])

    def add(self, key: str, entry_id: EntryId, message: Message) -> None:
        """XADD with an id that has been drawn already."""
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = Stream()
        stream.entries[entry_id] = message
        stream.last_id = entry_id

    def trim(self, key: str, first: EntryId) -> None:
        """XTRIM MINID."""
        stream = self.streams.get(key)
        if stream is not None:
            stream.entries = {entry_id: entry for entry_id, entry in stream.entries.items() if entry_id >= first}

    def deliver(self, key: str, consumer: str, ids: list[EntryId]) -> None:
        """XREADGROUP has given these away."""
        stream = self.streams[key]
        stream.pending.update(dict.fromkeys(ids, consumer))
        stream.delivered = ids[-1]

    def acknowledge(self, key: str, entry_id: EntryId) -> None:
        """XACK and XDEL."""
        stream = self.streams.get(key)
        if stream is not None:
            stream.pending.pop(entry_id, None)
            stream.entries.pop(entry_id, None)

    def drop(self, key: str) -> None:
        """DEL."""
        self.streams.pop(key, None)
        self.values.pop(key, None)

    def put(self, key: str, value: object) -> None:
        """SET."""
        self.values[key] = value

    def put_field(self, key: str, name: object, value: object) -> None:
        """HSET."""
        self.hashes.setdefault(key, {})[name] = value

    def drop_field(self, key: str, name: object) -> None:
        """HDEL."""
        self.hashes.get(key, {}).pop(name, None)
