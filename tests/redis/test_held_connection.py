"""A connection that is kept: each batch has its own answers, whatever became of those before."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shared.bus.bus import connect
from shared.bus.held_connection import HeldConnection
from shared.bus.master import MasterPool

LONG_S = 5.0
SHORT_S = 0.05


async def number_of(connection: HeldConnection) -> int:
    [number] = await connection.ask(("CLIENT", "ID"))
    assert isinstance(number, int)
    return number


async def test_replies_come_in_the_order_of_the_commands_and_a_fault_costs_its_own_command_only(redis: Redis) -> None:
    held = HeldConnection(redis, LONG_S)
    replies = await held.ask(("SET", "a", b"\x00"), ("INCR", "a"), ("GET", "a"), ("GET", "none"))
    assert [replies[0], *replies[2:]] == [b"OK", b"\x00", None]
    assert isinstance(replies[1], ResponseError)
    await held.give_back()


async def test_it_is_the_same_connection_until_it_is_given_back(redis: Redis) -> None:
    held = HeldConnection(redis, LONG_S)
    number = await number_of(held)
    assert await number_of(held) == number
    await held.give_back()
    assert await number_of(held) != number
    await held.give_back()


async def test_one_that_the_server_has_closed_is_taken_anew(redis: Redis) -> None:
    held = HeldConnection(redis, LONG_S)
    number = await number_of(held)
    assert await redis.client_kill_filter(_id=str(number)) == 1
    while await redis.client_list(client_id=[number]):
        pass
    await redis.ping()  # by now the loop has read that it was closed
    assert await number_of(held) != number
    await held.give_back()


async def test_what_was_cancelled_is_not_the_answer_to_what_is_asked_next(redis: Redis) -> None:
    held = HeldConnection(redis, LONG_S)
    number = await number_of(held)
    asking = asyncio.create_task(held.ask(("BLPOP", "list", 0)))
    while b"blpop" not in {one["cmd"].encode() for one in await redis.client_list(client_id=[number])}:
        pass
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await redis.rpush("list", "late")
    assert await held.ask(("PING",)) == [b"PONG"]
    await held.give_back()


async def test_silence_is_an_error_and_ends_with_the_next_batch(redis: Redis) -> None:
    held = HeldConnection(redis, SHORT_S)
    with pytest.raises(RedisTimeoutError):
        await held.ask(("BLPOP", "list", 0))
    assert await held.ask(("PING",)) == [b"PONG"]
    await held.give_back()


async def test_one_whose_server_is_no_master_any_more_is_left(redis: Redis) -> None:
    held = HeldConnection(redis, LONG_S)
    number = await number_of(held)
    assert isinstance(redis.connection_pool, MasterPool)
    await redis.connection_pool.leave_master()
    assert await number_of(held) != number
    await held.give_back()


async def test_a_place_in_the_pool_is_free_again_whatever_went_wrong(redis_url: str) -> None:
    redis = connect(redis_url)
    redis.connection_pool.max_connections = 1
    held = HeldConnection(redis, SHORT_S)
    with pytest.raises(RedisError):
        await held.ask(("BLPOP", "list", 0))
    assert await redis.ping()
    await redis.aclose()
