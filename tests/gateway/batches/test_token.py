"""How a gateway finds the secret of the batch service."""

from __future__ import annotations

import asyncio

from gateway.batches.token import READ_AGAIN_S, BatchToken


class SlowRedis:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.num_reads = 0
        self.now_s = 0.0
        self._may_answer = asyncio.Event()

    async def read(self) -> str | None:
        self.num_reads += 1
        await self._may_answer.wait()
        return "secret"

    def answer(self) -> None:
        self._may_answer.set()

    def token(self) -> BatchToken:
        return BatchToken(self.read, lambda: self.now_s)


async def until_all_wait() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_comes_while_it_is_read_for_the_first_time_waits_for_it() -> None:
    redis = SlowRedis()
    token = redis.token()
    first, second = asyncio.create_task(token.is_it("secret")), asyncio.create_task(token.current())
    await until_all_wait()
    redis.answer()
    assert (await first, await second, redis.num_reads) == (True, "secret", 1)


async def test_a_read_that_was_given_up_is_made_again() -> None:
    redis = SlowRedis()
    token = redis.token()
    first = asyncio.create_task(token.current())
    await until_all_wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    redis.answer()
    assert await token.current() == "secret"


async def test_a_wrong_secret_is_looked_up_once_a_second() -> None:
    redis = SlowRedis()
    redis.answer()
    token = redis.token()
    assert [await token.is_it(given) for given in ("wrong", "worse", "secret")] == [False, False, True]
    assert redis.num_reads == 1
    redis.now_s = READ_AGAIN_S
    assert not await token.is_it("wrong")
    assert redis.num_reads == 2
