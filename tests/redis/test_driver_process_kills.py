"""As `test_driver_kills`, but the kernel does it: ``kill -9`` of a real process at work."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import Redis

from tests.redis import counting_service
from tests.redis.counting import SCRATCH, check_numbers, check_scratch, committed_id, said, say
from tests.redis.life import life
from tests.redis.waiting import until

NUM_KILLS = 20
WORDS_A_PIECE = 40
MAX_PIECES_A_LIFE = 12
SEED = 9


@contextmanager
def child(url: str) -> Iterator[None]:
    """A service process; leaving the block is ``kill -9``."""
    context = multiprocessing.get_context("forkserver")  # imports once, not in every life
    context.set_forkserver_preload([counting_service.__name__])
    process = context.Process(target=counting_service.serve, args=(url, "child"), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the process ended by itself"
    finally:
        process.kill()
        process.join()
        process.close()


async def test_a_killed_process_loses_nothing_and_sends_nothing_twice(redis: Redis, redis_url: str) -> None:
    dice = random.Random(SEED)
    words: list[str] = []
    for _ in range(NUM_KILLS):
        with child(redis_url):
            for _ in range(dice.randint(1, MAX_PIECES_A_LIFE)):
                before = await committed_id(redis)
                piece = [f"w{len(words) + number}" for number in range(WORDS_A_PIECE)]
                words += piece
                await say(redis, *piece)

                async def is_at_work(before: bytes = before) -> bool:
                    return await committed_id(redis) != before

                await until(is_at_work)  # somewhere in the piece, or in the Tick behind it
    async with life(redis_url, instance="child") as last:
        await last.is_through()
    effects = await said(redis)
    check_numbers(effects, words)
    check_scratch(await said(redis, SCRATCH), words)
    assert len(effects) > len(words), "ticks are part of what is tested"
