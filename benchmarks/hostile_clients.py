"""Clients that take and do not give: half a header, nothing, a body in drops, an answer that is not read."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress

HOST = "127.0.0.1"
DROP_EVERY_S = 1.0
SMALL_BUFFER = 4096
LONG_TOKEN = "#" * 80  # one token of the model's, so that a short prompt is a long text
ECHOED = {"model": "chat", "prompt": [LONG_TOKEN * 600] * 8, "n": 16, "echo": True, "max_tokens": 1}


class Attack:
    """All that is connected, and what goes on sending."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, port: int, receive_buffer: int | None = None) -> asyncio.StreamWriter:
        """One more connection."""
        _, writer = await connect(port, receive_buffer)
        self._writers.append(writer)
        return writer

    def drip(self, writer: asyncio.StreamWriter) -> None:
        """A byte a second, until the other side has enough."""

        async def drop() -> None:
            with suppress(OSError):
                while True:
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(DROP_EVERY_S)

        self._tasks.append(asyncio.create_task(drop()))

    async def close(self) -> None:
        """End all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


async def connect(port: int, receive_buffer: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection; ``receive_buffer`` is set before, since it decides how much the other side may send ahead."""
    raw = socket.socket()
    raw.setblocking(False)
    if receive_buffer is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(raw, (HOST, port))
    return await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER)


async def silent(attack: Attack, port: int) -> None:
    """Sends nothing."""
    await attack.open(port)


async def half_sent(attack: Attack, port: int) -> None:
    """Sends a header without its end, and goes on."""
    writer = await attack.open(port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    attack.drip(writer)


async def drip(attack: Attack, port: int) -> None:
    """Sends a whole header, and its body byte by byte."""
    writer = await attack.open(port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n")
    attack.drip(writer)


async def unread(attack: Attack, port: int) -> None:
    """Asks for six megabytes and reads nothing."""
    writer = await attack.open(port, SMALL_BUFFER)
    body = json.dumps(ECHOED).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
