"""A process's place in a stream that may lose its end, as `shared.bus.read_marks` keeps it."""

from __future__ import annotations

from functools import partial

from shared.messages.message import Message
from tests.schedules.agenda import sleep, wait
from tests.schedules.keyspace import NO_ID, EntryId
from tests.schedules.process import Process
from tests.schedules.redis_model import RedisAwayError

BLOCK_S = 4.0  # what comes wakes it
MAX_READ_ENTRIES = 512


class Reader:
    """Reads one stream from now on."""

    def __init__(self, process: Process, stream: str, backoff_s: float) -> None:
        self.stream = stream
        self._process = process
        self._redis = process.redis
        self._backoff_s = backoff_s
        self._position = NO_ID
        self._num_moves = 0
        self._read: dict[EntryId, Message | None] = {NO_ID: None}

    async def start(self) -> None:
        """Begin behind the newest entry that is there now."""
        self.begin_behind(await self._process.ask("open", lambda: self._redis.newest(self.stream)))

    def begin_behind(self, entry_id: EntryId) -> None:
        """Go on behind an entry that others need not have read."""
        self._position = entry_id
        self._read = {entry_id: None}
        self._num_moves += 1

    async def next(self) -> Message:
        """The next entry; a Redis that is away is waited for."""
        while True:
            if not self._redis.has_news(self.stream, self._position):
                await wait(self._redis.signal(self.stream), BLOCK_S)
            try:
                num_moves, position = self._num_moves, self._position
                entries = await self._process.ask("read", partial(self._redis.read, self.stream, position, 1))
            except RedisAwayError:
                await sleep(self._backoff_s)
                continue
            if entries and num_moves == self._num_moves:
                entry_id, message = entries[0]
                self._position = entry_id
                self._read[entry_id] = message
                return message

    def put_back(self) -> None:
        """Go on from the last entry of those that were read which is still there."""
        stream = self._redis.keys.streams.get(self.stream)
        entries = stream.entries if stream is not None else {}
        first, last = next(iter(self._read)), NO_ID
        for entry_id, message in entries.items():
            if entry_id < first:
                continue
            if entry_id not in self._read or self._read[entry_id] not in (None, message):
                break
            last = entry_id
        self._position = last
        self._num_moves += 1
