"""Writes the log of one response, for the one process that follows it.

What a write was answered with decides what is written next: it may be done already (its answer was lost), undone (Redis
came back without its end), or the response may be another one's by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from gateway.inflight.queue_port import QueueUnavailableError
from gateway.kept.background import MAX_LOG_BYTES, Claim, Standing
from gateway.kept.response_log import ResponseLogEntry, read_log, written
from gateway.openai.errors import kept_errors

RETRY_S = 0.5  # a Redis that is away, or full, is asked again so often: what has come waits here meanwhile

_log = structlog.get_logger(__name__)


class NotFollowedError(Exception):
    """This process does not follow the response any more."""

    def __init__(self, standing: Standing) -> None:
        super().__init__(standing.value)
        self.standing = standing


class WritesLogs(Protocol):
    """As `Background`."""

    async def create(self, claim: Claim, status: str = "queued", *, is_bounded: bool = True) -> str:
        """See there."""

    async def append(self, response_id: str, num_before: int, data: bytes, next_number: int) -> Standing | int:
        """See there."""

    async def end(self, response_id: str, num_before: int, data: bytes, kept: bytes) -> Standing | int:
        """See there."""


class LogWriter:
    """Of one life of a response."""

    def __init__(self, background: WritesLogs, claim: Claim, retry_s: float = RETRY_S) -> None:
        self._background = background
        self._retry_s = retry_s
        self._claim = claim
        self._data = bytearray(claim.log)
        self._num_there = len(claim.log)
        self.entries = read_log(claim.log)
        """Those that were there at its beginning."""
        self.next = claim.next
        """Sequence number of the next event."""
        self.is_ending = False

    @property
    def has_begun(self) -> bool:
        """There is more than that it is queued."""
        return bool(self._claim.log) and self.next > 2

    async def append(self, entry: ResponseLogEntry) -> None:
        """Until it is there; `ApiError` for more than is kept, `NotFollowedError`."""
        data = written(entry)
        if len(self._data) + len(data) > MAX_LOG_BYTES:
            raise kept_errors.response_too_long(MAX_LOG_BYTES)
        self._take(entry, data)

        def send(num_before: int, rest: bytes) -> Awaitable[Standing | int]:
            return self._background.append(self._claim.response_id, num_before, rest, self.next)

        while self._num_there < len(self._data):
            await self._send(send)

    async def end(self, entry: ResponseLogEntry, kept: bytes) -> None:
        """The last entry, and the answer as it is kept; `NotFollowedError`."""
        self.is_ending = True
        self._take(entry, written(entry))

        def send(num_before: int, rest: bytes) -> Awaitable[Standing | int]:
            return self._background.end(self._claim.response_id, num_before, rest, kept)

        while not await self._send(send):
            pass

    async def restore(self) -> None:
        """Redis has lost it: write all of it once more. It may be full, or away again: then it is found lost again."""
        claim = self._claim._replace(next=self.next, log=bytes(self._data[: self._num_there]))
        _log.warning("response restored", response_id=claim.response_id, num_log_bytes=len(claim.log))
        await self._background.create(claim, "in_progress" if self.has_begun else "queued", is_bounded=False)

    def _take(self, entry: ResponseLogEntry, data: bytes) -> None:
        self._data += data
        self.next = entry.next

    async def _send(self, send: Callable[[int, bytes], Awaitable[Standing | int]]) -> bool:
        """Once; whether it was done."""
        num_bytes = len(self._data)
        try:
            found = await send(self._num_there, bytes(self._data[self._num_there : num_bytes]))
            if found is Standing.LOST:
                await self.restore()
                return False
        except QueueUnavailableError as error:
            _log.warning("response not written, retrying", response_id=self._claim.response_id, error=str(error))
            await asyncio.sleep(self._retry_s)
            return False
        if found is Standing.OK:
            self._num_there = num_bytes
            return True
        if isinstance(found, Standing):
            raise NotFollowedError(found)
        if found > num_bytes:
            raise NotFollowedError(Standing.TAKEN)  # what is there was not written here
        self._num_there = found
        return False
