"""Redis itself is killed and comes back: the driver builds its core again and goes on, nothing lost or doubled."""

from __future__ import annotations

from shared.bus.bus import connect
from tests.redis.counting import SCRATCH, check_numbers, check_scratch, committed_id, said, say
from tests.redis.life import life
from tests.redis.own_server import OwnServer
from tests.redis.waiting import lasting, until

NUM_OUTAGES = 3
WORDS_A_PIECE = 2000
OUTAGE_S = 0.3


async def feed(url: str, words: list[str]) -> None:
    """Say the words, and wait until the driver is somewhere among them."""
    async with connect(url) as redis:  # of its own: connections do not outlive the server
        before = await committed_id(redis)
        await say(redis, *words)

        async def is_at_work() -> bool:
            return await committed_id(redis) != before

        await until(is_at_work)


async def test_a_driver_outlives_its_redis(own_server: OwnServer) -> None:
    words: list[str] = []
    async with life(own_server.url) as one:

        async def has_no_core() -> bool:
            return one.driver.core is None

        await one.leads()
        for _ in range(NUM_OUTAGES):
            piece = [f"w{len(words) + number}" for number in range(WORDS_A_PIECE)]
            words += piece
            await feed(own_server.url, piece)
            own_server.kill()
            await until(has_no_core)  # never on with a core that may be ahead of the log
            await lasting(one.task, OUTAGE_S)
            await own_server.start()
            await one.leads()
        await one.is_through()
        check_numbers(await said(one.redis), words)
        check_scratch(await said(one.redis, SCRATCH), words)


async def test_a_driver_started_before_its_redis_waits_for_it(own_server: OwnServer) -> None:
    own_server.kill()
    async with life(own_server.url) as one:
        await lasting(one.task, OUTAGE_S)
        assert one.driver.core is None
        await own_server.start()
        await one.leads()


async def test_a_polite_stop_needs_no_redis(own_server: OwnServer) -> None:
    async with life(own_server.url) as one:
        await one.leads()
        own_server.kill()
        await one.end()
