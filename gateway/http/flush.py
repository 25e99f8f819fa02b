"""Until an answer is out: written to the client's connection, not only handed to it.

aiohttp is done with an answer when its last piece is in the connection's buffer. There it lies while its client does
not read, and it is not counted. So a handler that holds a slot for an answer waits here before giving it back.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.http.context import ANSWERED, CONNECTIONS
from shared.service.background.tasks import cancel_all

MIN_WRITE_BYTES_PER_S = 64 << 10  # a client that reads slower than this holds a large answer for nothing

UNREAD = web.RequestKey("UNREAD", bool)
"""Its client did not read the answer."""

DELIVERED = web.RequestKey("DELIVERED", bool)
"""All of its answer is written to the connection."""

_ANY = (1 << 31) - 1  # bytes in a buffer before aiohttp waits for its client, for ever: never (uvloop takes no more)


async def deliver(http: web.Request, response: web.StreamResponse) -> None:
    """Send what is left of an answer and return when all of it is out, or its client has gone or does not read."""
    transport = http.transport
    if transport is None or transport.is_closing():
        return
    transport.set_write_buffer_limits(high=_ANY)
    http[ANSWERED] = True
    try:
        await response.prepare(http)
        await response.write_eof()
        await flush(http, http.app[CONNECTIONS].timeouts.write_s)
        http[DELIVERED] = True
    except ConnectionError:
        return  # aiohttp finds the same
    except TimeoutError:
        give_up(http)


async def flush(http: web.BaseRequest, timeout_s: float) -> None:
    """Wait until nothing is left in the connection's buffer; TimeoutError if its client takes too little of it."""
    if not _num_left(http):
        return
    await asyncio.sleep(0)  # the loop writes when it has run what was due: mostly, that is all of it
    transport = http.transport
    if transport is None or not _num_left(http):
        return
    transport.set_write_buffer_limits(high=0)  # writing counts as paused until the buffer is empty
    drained = asyncio.ensure_future(http.writer.drain())
    try:
        num_left = _num_left(http)
        while not (await asyncio.wait([drained], timeout=timeout_s))[0]:
            num_before, num_left = num_left, _num_left(http)
            if num_before - num_left < MIN_WRITE_BYTES_PER_S * timeout_s:
                raise TimeoutError
        drained.result()
    finally:
        await cancel_all([drained])
        if http.transport is not None:
            http.transport.set_write_buffer_limits()


def give_up(http: web.BaseRequest) -> None:
    """Tear the connection down: closed in the ordinary way, it would first wait for its client to read all."""
    http[UNREAD] = True
    if http.transport is not None:
        http.transport.abort()


def _num_left(http: web.BaseRequest) -> int:
    return http.transport.get_write_buffer_size() if http.transport is not None else 0
