"""The commit script: all of a batch or nothing, and each kind of effect."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from shared.bus import streams
from shared.messages.requests.requests import Cancel
from shared.service.core import Drop, Send
from shared.service.log.cluster_clock import ClusterClock
from shared.service.log.commit_log import CommitLog, LogEntry, LostCommitsError
from shared.service.log.lease import LEASE_S, FencedError
from tests.redis.counting import INBOX, SERVICE, committed_id, said
from tests.redis.own_server import OwnServer

A, B = "treadle:test:a", "treadle:test:b"
ENTRIES = ("6-0", "7-0", "8-0", "9-0")


@pytest.fixture
async def log(redis: Redis) -> CommitLog:
    """The log of a service whose lease is held, and some entries."""
    log = CommitLog(redis, SERVICE, INBOX, "one")
    for entry in ENTRIES:
        await redis.xadd(INBOX, {"m": "x"}, id=entry)
    assert await log.lease.acquire()
    return log


def read(entry: str) -> LogEntry:
    """As the log has answered it."""
    return entry.encode(), {b"m": b"x"}


def word(text: str) -> Cancel:
    return Cancel(request_id=text)


async def test_effects_go_out_in_order_and_the_committed_id_moves(redis: Redis, log: CommitLog) -> None:
    await log.commit(read("7-0"), [Send(A, word("1")), Send(B, word("2")), Send(A, word("3"))])
    assert await said(redis, A) == ["1", "3"]
    assert await said(redis, B) == ["2"]
    assert await committed_id(redis) == b"7-0"


async def test_without_entries_the_committed_id_stays(redis: Redis, log: CommitLog) -> None:
    await log.commit(read("7-0"), [])
    await log.commit(None, [Send(A, word("1"))])
    assert await committed_id(redis) == b"7-0"


async def test_a_commit_answers_the_time_of_redis_and_is_a_sign_of_life(redis: Redis, log: CommitLog) -> None:
    before: Any = await redis.hgetall(streams.beat(SERVICE))
    seconds: Any = await redis.time()
    assert 0 <= await log.commit(None, []) - seconds[0] < 60
    after: Any = await redis.hgetall(streams.beat(SERVICE))
    assert int(after[b"n"]) == int(before[b"n"]) + 1
    assert int(after[b"hold_ms"]) == LEASE_S * 1000


async def test_a_leader_that_knows_of_lost_commits_writes_nothing(redis: Redis, log: CommitLog) -> None:
    """Redis has come back without its last second, or a replica that was behind leads."""
    await log.commit(read("7-0"), [])
    await log.commit(read("8-0"), [])
    await redis.hset(streams.state(SERVICE), "committed", "7-0")
    with pytest.raises(LostCommitsError, match="BEHIND commits were lost, after 8-0"):
        await log.commit(read("9-0"), [Send(A, word("1"))])
    with pytest.raises(LostCommitsError, match="BEHIND commits were lost, after 8-0"):
        await log.save(b"8-0", b"state", ClusterClock(), [])
    assert await redis.exists(A) == 0
    assert await redis.xlen(INBOX) == len(ENTRIES)
    assert (await log.load()).committed == b"7-0"
    await log.commit(read("9-0"), [Send(A, word("1"))])
    assert await committed_id(redis) == b"9-0"


async def test_a_batch_that_redis_has_lost_is_not_committed(redis: Redis, log: CommitLog) -> None:
    """Read, lost with the end of the log, and committed over a connection that was made anew."""
    await log.commit(read("7-0"), [])
    await redis.xdel(INBOX, "9-0")
    with pytest.raises(LostCommitsError, match="BEHIND entries were lost, after 7-0"):
        await log.commit(read("9-0"), [Send(A, word("1"))])
    assert await redis.exists(A) == 0


async def test_another_entry_with_the_id_of_the_lost_one_is_not_committed(redis: Redis, log: CommitLog) -> None:
    """Redis's clock had gone back: ids grow by their counter, and the next entry was given the id of the lost one."""
    await redis.delete(INBOX)
    await redis.xadd(INBOX, {"m": "y"}, id="9-0")
    with pytest.raises(LostCommitsError, match="BEHIND entries were lost, after 0-0"):
        await log.commit(read("9-0"), [Send(A, word("1"))])
    assert await redis.exists(A) == 0
    await log.commit((b"9-0", {b"m": b"y"}), [Send(A, word("1"))])
    assert await committed_id(redis) == b"9-0"


@pytest.mark.parametrize("fields", [["f", "x"], ["m", "x", "m", "y"], ["f", "", "m", "z"]], ids=" ".join)
async def test_what_no_service_writes_is_committed_as_it_was_read(
    redis: Redis, log: CommitLog, fields: list[str]
) -> None:
    """Fields that nobody knows, or one twice: it has been set aside, and the log goes on."""
    await redis.execute_command("XADD", INBOX, "10-0", *fields)  # type: ignore[no-untyped-call]
    (entry,) = await log.read(b"9-0", block_ms=1)
    await log.commit(entry, [])
    assert await committed_id(redis) == b"10-0"


async def test_marks_of_the_clock_are_committed_with_their_entries_and_shared(redis: Redis, log: CommitLog) -> None:
    await log.commit(read("7-0"), [], {b"6-0": -600.25, b"7-0": -601.0})
    saved = await log.load()
    assert saved.clock_marks == {b"6-0": -600.25, b"7-0": -601.0}
    assert saved.shared_offset_s == -601.0
    clock = saved.make_clock()
    assert [clock.replay(entry) for entry in (b"5000-0", b"6-0", b"700000-0")] == [5.0, 5.0, 99.75]
    await log.save(b"7-0", b"state", clock, [])
    saved = await log.load()
    assert (saved.clock, saved.clock_marks) == ((-600.25, 99.75), {})


async def test_a_target_of_the_wrong_type_refuses_the_whole_batch(redis: Redis, log: CommitLog) -> None:
    await redis.set(B, "a string")
    with pytest.raises(ResponseError, match=f"{B} is a string, not a stream"):
        await log.commit(read("7-0"), [Send(A, word("1")), Send(B, word("2"))])
    assert await redis.exists(A) == 0
    assert await committed_id(redis) == b"0-0"


async def test_a_full_memory_refuses_neither_commits_nor_what_frees_it(own_server: OwnServer) -> None:
    async with Redis.from_url(own_server.url) as redis:
        log = CommitLog(redis, SERVICE, INBOX, "one")
        await redis.xadd(INBOX, {"m": "x"}, id="8-0")
        await redis.config_set("maxmemory", "1")
        assert await log.lease.acquire()
        await log.lease.renew()
        await log.commit(read("8-0"), [Send(A, word("2")), Send(A, word("3"))])
        await log.set_aside((b"9-0", {}), "bad")
        await log.save(b"9-0", b"state", ClusterClock(), [b"9-0"])
        assert await said(redis, A) == ["2", "3"]
        assert await committed_id(redis) == b"8-0"
        assert await redis.xlen(INBOX) == 0
        await log.lease.release()


async def test_what_is_for_an_existing_stream_makes_none(redis: Redis, log: CommitLog) -> None:
    await log.commit(None, [Send(A, word("1"))])
    await log.commit(None, [Send(A, word("2"), to_existing=True), Send(B, word("2"), to_existing=True)])
    assert await said(redis, A) == ["1", "2"]
    assert await redis.exists(B) == 0


async def test_a_stream_made_in_the_same_batch_exists(redis: Redis, log: CommitLog) -> None:
    await log.commit(None, [Send(A, word("1")), Send(A, word("2"), to_existing=True)])
    assert await said(redis, A) == ["1", "2"]


async def test_a_bounded_stream_loses_its_oldest(redis: Redis, log: CommitLog) -> None:
    words = [str(number) for number in range(1000)]
    await log.commit(None, [Send(A, word(text), max_entries=100) for text in words])
    kept = await said(redis, A)
    assert 100 <= len(kept) <= 200, "about the bound: Redis trims whole nodes of its tree"
    assert kept == words[-len(kept) :]


async def test_a_dropped_stream_is_gone_and_may_be_dropped_again(redis: Redis, log: CommitLog) -> None:
    await log.commit(None, [Send(A, word("1"))])
    await log.commit(None, [Drop(A), Drop(A)])
    await log.commit(None, [Drop(A), Send(A, word("late"), to_existing=True)])
    assert await redis.exists(A) == 0


async def test_whoever_lost_the_lease_writes_nothing(redis: Redis, log: CommitLog) -> None:
    await log.commit(read("7-0"), [])
    await redis.delete(streams.lease(SERVICE))
    other = CommitLog(redis, SERVICE, INBOX, "other")
    assert await other.lease.acquire()
    before: Any = await redis.hgetall(streams.state(SERVICE))
    with pytest.raises(FencedError, match="lease from one#1"):
        await log.commit(read("8-0"), [Send(A, word("1"))])
    with pytest.raises(FencedError):
        await log.save(b"8-0", b"state", ClusterClock(), [])
    with pytest.raises(FencedError):
        await log.set_aside((b"8-0", {}), "bad")
    await log.lease.release()
    assert await other.lease.leader() == "other", "an old leader releases nothing"
    assert await redis.hgetall(streams.state(SERVICE)) == before
    assert await redis.exists(A, streams.DEAD_LETTER) == 0


async def test_a_lease_that_ran_out_counts_as_lost(redis: Redis, log: CommitLog) -> None:
    await redis.delete(streams.lease(SERVICE))
    with pytest.raises(FencedError):
        await log.commit(read("7-0"), [Send(A, word("1"))])
    assert await redis.exists(A) == 0


async def test_names_that_begin_alike_are_different_instances(redis: Redis, log: CommitLog) -> None:
    for name in ("on", "one#1", "one-more", "o.e", "%a+"):
        assert not await CommitLog(redis, SERVICE, INBOX, name).lease.acquire()
    assert await CommitLog(redis, SERVICE, INBOX, "one").lease.acquire()
