"""Whatever becomes of its writes, a log has each entry once and in order, and an answer only with the whole of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.endpoints.background.log_writer import LogWriter, NotFollowedError
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.kept.background import MAX_LOG_BYTES, BackgroundRequest, Claim, Standing
from gateway.kept.response_log import ResponseLogEntry, read_log, written
from gateway.openai.errors.errors import ApiError

REQUEST = BackgroundRequest(tenant="a", key_id="", body=b"{}", earlier=b"[]", seed=7, arrived_s=1.0, blank=b"{}")
FIRST = ResponseLogEntry(0, [b"created", b"queued"])
CLAIM = Claim("resp_1", 0, REQUEST, FIRST.next, written(FIRST))
FAULTS = ("away", "answer lost", "end lost", "all lost", "")


class FaultyStore:
    """What Redis has of one response, as its scripts treat it; before each write another fault of a list."""

    def __init__(self, faults: list[str]) -> None:
        self.log: bytes | None = CLAIM.log
        self.kept: bytes | None = None
        self._faults = faults

    async def create(self, claim: Claim, status: str = "queued", *, is_bounded: bool = True) -> str:
        assert (status == "in_progress") == (claim.next > FIRST.next)
        assert not is_bounded, "it was taken before"
        self._fail("away")
        self.log = claim.log
        return "ok"

    async def append(self, response_id: str, num_before: int, data: bytes, next_number: int) -> Standing | int:
        fault = self._fail("away", "end lost", "all lost")
        if self.log is None:
            return Standing.LOST
        if len(self.log) != num_before:
            return len(self.log)
        self.log += data
        if fault == "answer lost":
            raise QueueUnavailableError(fault)
        return Standing.OK

    async def end(self, response_id: str, num_before: int, data: bytes, kept: bytes) -> Standing | int:
        if self.kept is not None:
            return Standing.OK
        found = await self.append(response_id, num_before, b"", 0)
        if found is Standing.OK:
            assert self.log is not None
            self.log, self.kept = self.log + data, kept
        return found

    def _fail(self, *known: str) -> str:
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "away" and fault in known:
            raise QueueUnavailableError(fault)
        if fault == "end lost" and fault in known and self.log:
            self.log = self.log[: len(self.log) // 2]
        if fault == "all lost" and fault in known:
            self.log = None
        return fault


def entries_of(sizes: list[int]) -> list[ResponseLogEntry]:
    entries = [FIRST]
    for size in sizes:
        entries.append(ResponseLogEntry(entries[-1].next, [b"x"] * size, list(range(size))))
    return entries


@given(st.lists(st.integers(0, 3), max_size=5), st.lists(st.sampled_from(FAULTS), max_size=12))
async def test_each_entry_is_there_once(sizes: list[int], faults: list[str]) -> None:
    store, entries = FaultyStore(faults), entries_of(sizes)
    writer = LogWriter(store, CLAIM, retry_s=0.0)
    for entry in entries[1:]:
        await writer.append(entry)
        assert writer.next == entry.next
    last = ResponseLogEntry(entries[-1].next, [b"end"], is_last=True)
    await writer.end(last, b"kept")
    assert store.log is not None
    assert read_log(store.log) == [*entries, last]
    assert store.kept == b"kept"


@pytest.mark.parametrize("standing", [Standing.ENDED, Standing.TAKEN])
async def test_one_that_is_another_s_is_not_written(standing: Standing) -> None:
    class Taken(FaultyStore):
        async def append(self, response_id: str, num_before: int, data: bytes, next_number: int) -> Standing | int:
            return standing

    store = Taken([])
    writer = LogWriter(store, CLAIM, retry_s=0.0)
    for write in (writer.append(FIRST), writer.end(FIRST, b"kept")):
        with pytest.raises(NotFollowedError) as refusal:
            await write
        assert refusal.value.standing is standing
    assert (store.log, store.kept) == (CLAIM.log, None)


async def test_a_log_that_was_written_further_than_here_is_another_s() -> None:
    store = FaultyStore([])
    store.log = CLAIM.log + written(FIRST) * 2
    with pytest.raises(NotFollowedError):
        await LogWriter(store, CLAIM, retry_s=0.0).append(FIRST)


async def test_a_log_has_a_most() -> None:
    store = FaultyStore([])
    writer = LogWriter(store, CLAIM, retry_s=0.0)
    big = ResponseLogEntry(2, [b"x" * (MAX_LOG_BYTES // 2)])
    await writer.append(big)
    with pytest.raises(ApiError) as refusal:
        await writer.append(big)
    assert refusal.value.code == "response_too_long"
    await writer.end(ResponseLogEntry(3, [b"failed"], is_last=True), b"kept")
    assert store.log is not None
    assert [entry.first for entry in read_log(store.log)] == [0, 2, 3]
