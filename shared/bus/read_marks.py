"""How far a reader has come in a stream, should the stream lose its end.

Ids that come after a loss may lie before those that were read: another server's clock may be behind. So a position is
not enough to go on from; the entries that were read last are, as far as they are still there.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_MARKS = 1_024  # a second of messages, which is what a crash loses, and more; without any match all is read again
BEGINNING = b"0-0"


class ReadMarks:
    """Ids and contents of the entries that were read last. No I/O."""

    def __init__(self) -> None:
        self._marks: dict[bytes, int] = {}

    @property
    def oldest(self) -> bytes:
        """Id of the first entry that is remembered."""
        return next(iter(self._marks), BEGINNING)

    def note(self, entry_id: bytes, data: bytes) -> None:
        """An entry has been read."""
        self._marks[entry_id] = hash(data)
        if len(self._marks) > MAX_MARKS:
            del self._marks[self.oldest]

    def go_back(self, entries: Iterable[tuple[bytes, bytes]]) -> bytes:
        """To where the entries that a stream has now, from `oldest` on, are those that were read; the rest is gone."""
        common: dict[bytes, int] = {}
        for entry_id, data in entries:
            if self._marks.get(entry_id) != hash(data):
                break
            common[entry_id] = hash(data)
        self._marks = common
        return next(reversed(common), BEGINNING)
