"""A connection that is reset between its making and its first command is one that is lost, under uvloop as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.bus.bus import connect


async def command_behind_a_reset(url: str) -> None:
    async with connect(url) as redis:
        connection = await redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            connection._writer.transport.abort()
            await asyncio.sleep(0)  # uvloop closes its handle in the next round of its loop
            await connection.send_command("PING", check_health=False)
        finally:
            await redis.connection_pool.release(connection)


def test_uvloop_says_so_with_an_error_that_callers_expect(redis_url: str) -> None:
    """asyncio tells of it with the first read; uvloop with a `RuntimeError` of the write, which nobody would catch."""
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(RedisConnectionError, match="has closed"):
        runner.run(command_behind_a_reset(redis_url))
