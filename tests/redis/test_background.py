"""Responses in the background in a real Redis: who follows one, who may write its log, what is left at its end."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from gateway.inflight.kept_responses import KeptResponses
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from gateway.kept.background import MAX_IN_ALL, MAX_OF_TENANT, Background, BackgroundRequest, Claim, Standing
from shared.bus import streams
from shared.bus.bus import connect
from tests.redis.own_server import OwnServer

ID = "resp_1"
REQUEST = BackgroundRequest(
    tenant="a b", key_id="", body=b"{}", earlier=b"[]", seed=7, arrived_s=1.5, blank=b"{}", headers={"x": "y"}
)
FIRST = Claim(ID, 0, REQUEST, 2, b"log")
KEPT = b'{"tenant":"a b","num_input":0,"items":[],"answer":{"id":"resp_1"}}'


def of(redis: Redis, follower: str) -> Background:
    return Background(redis, follower, 600.0, 1 << 20)


async def test_one_is_claimed_once_its_follower_is_gone(redis: Redis) -> None:
    one, two, three = (of(redis, name) for name in ("one", "two", "three"))
    for process in (one, two, three):
        await process.sign([])
    assert await one.create(FIRST) == "ok"
    assert await two.look([]) == ({"one": "1", "two": "1", "three": "1"}, [])
    assert await two.claim(ID) is None, "its follower lives"
    await two.strike("one", "0")
    assert await two.claim(ID) is None, "it has shown more since"
    await two.strike("one", "1")
    assert (await two.look([]))[1] == [ID]
    assert await two.claim(ID) == FIRST._replace(life=1)
    assert await three.claim(ID) is None
    assert await one.append(ID, 3, b"more", 5) is Standing.TAKEN
    assert await one.end(ID, 3, b"more", KEPT) is Standing.TAKEN
    assert await one.sign([ID]) == [Standing.TAKEN]
    assert await two.append(ID, 3, b"ger", 5) is Standing.OK
    assert await two.read(ID, 0) == (b"logger", True)


async def test_what_this_process_does_not_know_of_it_claims_itself(redis: Redis) -> None:
    one = of(redis, "one")
    await one.sign([])
    await one.create(FIRST)
    assert (await one.look([ID]))[1] == []
    assert (await one.look([]))[1] == [ID]
    claim = await one.claim(ID)
    assert claim is not None
    assert claim.life == 1


async def test_a_log_is_written_once(redis: Redis) -> None:
    one = of(redis, "one")
    await one.create(FIRST)
    assert await one.append(ID, 3, b"ger", 5) is Standing.OK
    assert await one.append(ID, 3, b"ger", 5) == 6, "its answer was lost: it is there"
    assert await one.end(ID, 3, b"ger!", KEPT) == 6
    assert await one.end(ID, 6, b"!", KEPT) is Standing.OK
    assert await one.end(ID, 6, b"!", KEPT) is Standing.OK, "as often as it is said"
    assert await one.read(ID, 3) == (b"ger!", False)
    kept = KeptResponses(redis, 600.0, 1 << 20)
    found = await kept.find("a b", ID)
    assert found is not None
    assert await redis.hlen(streams.BACKGROUND) == 0
    assert not await redis.exists(streams.background(ID))
    assert int(await redis.get(streams.RESPONSES_BYTES) or 0) == len(KEPT) + len(b"logger!")
    assert await kept.forget(ID)
    assert await one.read(ID, 0) == (b"", False), "its log goes with it"
    assert int(await redis.get(streams.RESPONSES_BYTES) or 0) == 0


async def test_whoever_is_asked_cancels_it(redis: Redis) -> None:
    one, two = of(redis, "one"), of(redis, "two")
    await one.create(FIRST)
    assert await two.cancel(ID, 2, b"!", KEPT) == 3, "its log has grown"
    assert await two.cancel(ID, 3, b"!", KEPT) is Standing.OK
    assert await two.cancel(ID, 4, b"!", KEPT) is Standing.ENDED
    assert await two.find("a b", ID) is None
    assert await two.read(ID, 0) == (b"log!", False)
    assert await one.append(ID, 3, b"more", 5) is Standing.ENDED
    assert await redis.hlen(streams.BACKGROUND) == 0, "its follower strikes it out"


async def test_what_was_removed_and_what_redis_has_lost_are_told_apart(redis: Redis) -> None:
    one = of(redis, "one")
    await one.create(FIRST)
    assert await one.remove(ID)
    assert not await one.remove(ID)
    assert await one.sign([ID, "resp_2"]) == [Standing.ENDED, Standing.LOST]
    assert await one.append(ID, 3, b"more", 5) is Standing.LOST, "it was told once"


async def test_a_tenant_finds_its_own_alone(redis: Redis) -> None:
    one = of(redis, "one")
    await one.create(FIRST)
    found = await one.find("a b", ID)
    assert found is not None
    assert (found.request, found.status, found.next, found.num_log_bytes) == (REQUEST, "queued", 2, 3)
    assert await one.find("a", ID) is None


async def test_there_are_so_many_of_a_tenant_and_in_all(redis: Redis) -> None:
    one = of(redis, "one")
    for number in range(MAX_IN_ALL - 1):
        tenant = "a b" if number < MAX_OF_TENANT - 1 else "other"
        await redis.hset(streams.BACKGROUND, f"resp_{number}_", f"two {tenant}")
    assert await one.create(FIRST) == "ok"
    assert await one.create(FIRST._replace(response_id="resp_2")) == "full"
    await redis.hdel(streams.BACKGROUND, f"resp_{MAX_IN_ALL - 2}_")
    assert await one.create(FIRST._replace(response_id="resp_2")) == "tenant_full"
    assert await one.create(FIRST._replace(response_id="resp_2"), is_bounded=False) == "ok", "it was taken before"


async def test_what_lives_is_kept_alive(redis: Redis) -> None:
    one = of(redis, "one")
    await one.create(FIRST)
    keys = [streams.background(ID), streams.response_log(ID)]
    for key in keys:
        await redis.pexpire(key, 1000)
    await one.sign([ID])
    assert min([await redis.pttl(key) for key in keys]) > 1000


async def test_a_new_one_is_confirmed_where_that_is_asked_for(redis: Redis) -> None:
    asked: list[tuple[str, int]] = []

    async def confirm(key: str, ttl_s: int) -> None:
        asked.append((key, ttl_s))
        raise QueueUnavailableError("too few replicas")

    one = Background(redis, "one", 600.0, 1 << 20, confirm=confirm)
    with pytest.raises(QueueUnavailableError):
        await one.create(FIRST)
    assert asked == [(streams.background(ID), 604_800)]


async def test_a_full_redis_takes_no_new_one_and_one_that_is_away_says_so(own_server: OwnServer) -> None:
    redis = connect(own_server.url)
    one = of(redis, "one")
    await redis.config_set("maxmemory", "1")
    with pytest.raises(QueueFullError):
        await one.create(FIRST)
    assert await one.sign([]) == [], "signs of life go through"
    own_server.kill()
    with pytest.raises(QueueUnavailableError):
        await one.sign([])
    await redis.aclose()
