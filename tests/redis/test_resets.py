"""Whoever accepts connections and resets them at once is a Redis that is away, under uvloop as well."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
import uvloop
from redis.exceptions import RedisError

from shared.bus import connect

NUM_TRIES = 300
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset


def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


async def failures() -> list[Exception]:
    found: list[Exception] = []
    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"redis://127.0.0.1:{port}/0") as redis:
            for _ in range(NUM_TRIES):
                try:
                    await redis.ping()
                except (RedisError, OSError) as error:
                    found.append(error)
    return found


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_connection_that_is_reset_is_lost_and_no_defect(loop) -> None:  # type: ignore[no-untyped-def]
    with asyncio.Runner(loop_factory=loop) as runner:
        assert len(runner.run(failures())) == NUM_TRIES
