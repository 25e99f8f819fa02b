"""A driver is killed at random points, hundreds of times: each effect exactly once, in order, nothing lost."""

from __future__ import annotations

import random

from redis.asyncio import Redis

from shared.service import driver
from tests.redis.counting import INBOX, SCRATCH, check_numbers, check_scratch, committed_id, said, say
from tests.redis.life import life
from tests.redis.waiting import lasting

NUM_KILLS = 320
MAX_PIECES_A_LIFE = 6
MAX_WORDS_A_PIECE = 32
MAX_PAUSE_S = 0.012
SEED = 20240229


async def test_hundreds_of_kills_lose_nothing_and_send_nothing_twice(redis: Redis, redis_url: str) -> None:
    dice = random.Random(SEED)
    words: list[str] = []
    commits = set()
    for _ in range(NUM_KILLS):
        async with life(redis_url) as mortal:
            for _ in range(dice.randint(0, MAX_PIECES_A_LIFE)):
                piece = [f"w{len(words) + number}" for number in range(dice.randint(1, MAX_WORDS_A_PIECE))]
                await say(redis, *piece)
                words += piece
                await lasting(mortal.task, dice.uniform(0, MAX_PAUSE_S))
        commits.add(await committed_id(redis))
    assert len(words) > 2 * driver.SNAPSHOT_EVERY_ENTRIES, "snapshots are part of what is tested"
    assert len(commits) > NUM_KILLS / 4, "kills must hit a driver at work"
    async with life(redis_url) as last:
        await last.is_through()
        await last.end()
    effects = await said(redis)
    check_numbers(effects, words)
    check_scratch(await said(redis, SCRATCH), words)
    assert len(effects) - len(words) > NUM_KILLS / 4, "ticks are part of what is tested"
    assert await redis.xlen(INBOX) == 1, "the last snapshot covers all"
