"""Seconds in which the KV of a request goes from one node's process to another's, by its size.

    python benchmarks/kv_transfer.py --json

Between two processes of this machine, over the loopback: the way that nodes take (`gpu_node.agent.images`); the way
through Redis that they took before, for what it took (64 MiB); a bare socket, read into memory that is there, which is
what the loopback gives; and a copy in memory. The fetching process also looks how long its loop stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
import uvloop

from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image, ImageFile
from shared.bus.bus import connect
from shared.messages.requests.requests import ImageTicket
from tests.redis.image_port import image_port
from tests.redis.own_server import OwnServer

MIB = 1 << 20
SIZES = (1, 16, 64, 512)
MAX_REDIS_MIB = 64
NUM_TIMES = 5
LOOK_S = 0.001
ROOM = 8 << 30


def laid(num_bytes: int) -> ImageFile:
    """An image as an engine's process has it: a file in memory."""
    fd = os.memfd_create("image", os.MFD_CLOEXEC)
    piece = os.urandom(MIB)
    for _ in range(num_bytes // MIB):
        os.write(fd, piece)
    return ImageFile(f"/proc/{os.getpid()}/fd/{fd}", num_bytes)


# --- the other process ----------------------------------------------------------------------------------------------


async def give() -> None:
    """A line of input asks for a ticket of an image of so many bytes; the answer is a line."""
    holding: list[GivenImages] = []
    files: dict[int, ImageFile] = {}
    async with image_port(lambda: holding[0]) as base_url:
        holding.append(GivenImages("giver", "giver-1", base_url))
        number = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            number += 1
            num_bytes = int(line)
            file = files.setdefault(num_bytes, laid(num_bytes)) if num_bytes in files else laid(num_bytes)
            files[num_bytes] = file
            held = holding[0].hold(Image(f"r{number}", 0, number, file))
            sys.stdout.write(msgspec.json.encode(held.ticket).decode() + "\n")
            sys.stdout.flush()


@contextmanager
def giver() -> Iterator[Callable[[int], ImageTicket]]:
    """Another process; asked for tickets."""
    command = [sys.executable, __file__, "--give"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pipes = process.stdin, process.stdout

        def ask(num_bytes: int) -> ImageTicket:
            pipes[0].write(f"{num_bytes}\n")
            pipes[0].flush()
            return msgspec.json.decode(pipes[1].readline(), type=ImageTicket)

        try:
            yield ask
        finally:
            process.kill()


# --- what is timed --------------------------------------------------------------------------------------------------


async def directly(ask: Callable[[int], ImageTicket], num_bytes: int) -> tuple[float, float]:
    """As nodes do; and the longest time for which this loop stood still."""
    ticket = ask(num_bytes)
    fetcher = ImageFetcher(ROOM, lambda: 0)
    watching = asyncio.create_task(longest_pause())
    await asyncio.sleep(5 * LOOK_S)
    began_s = time.perf_counter()
    file, _ = await fetcher.fetch(ticket)
    took_s = time.perf_counter() - began_s
    watching.cancel()
    pause_s = (await asyncio.gather(watching, return_exceptions=True))[0]
    assert file != NO_IMAGE
    fetcher.close_file(file)
    fetcher.close()
    return took_s, pause_s if isinstance(pause_s, float) else 0.0


async def longest_pause() -> float:
    """Of this loop, beyond what it was asked to sleep; until it is cancelled."""
    longest_s = 0.0
    try:
        while True:
            began_s = time.perf_counter()
            await asyncio.sleep(LOOK_S)
            longest_s = max(longest_s, time.perf_counter() - began_s - LOOK_S)
    except asyncio.CancelledError:
        return longest_s


async def through_redis(url: str, data: bytes) -> float:
    """SET by one connection and GETDEL by another, as one node after the other did; Redis writes its log as ours."""
    async with connect(url) as one, connect(url) as other:
        await asyncio.gather(one.ping(), other.ping())
        began_s = time.perf_counter()
        await one.set("image", data, ex=120)
        assert await other.getdel("image") == data
        return time.perf_counter() - began_s


def over_a_socket(num_bytes: int) -> float:
    """A thread's ``sendall``, read into memory that has been touched: no checksum, no other process."""
    data, into = memoryview(bytes(num_bytes)), memoryview(bytearray(num_bytes))
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server, data))
        sender.start()
        began_s = time.perf_counter()
        with socket.create_connection(server.getsockname()) as sock:
            num_read = 0
            while num_read < num_bytes:
                num_read += sock.recv_into(into[num_read : num_read + MIB])
        took_s = time.perf_counter() - began_s
        sender.join()
    return took_s


def _send(server: socket.socket, data: memoryview) -> None:
    peer, _ = server.accept()
    with peer:
        peer.sendall(data)


def in_memory(num_bytes: int) -> float:
    """A copy to memory that has been touched."""
    data, into = bytes(num_bytes), bytearray(num_bytes)
    began_s = time.perf_counter()
    memoryview(into)[:] = data
    return time.perf_counter() - began_s


# --- all of it ------------------------------------------------------------------------------------------------------


async def median(measure: Callable[[], Awaitable[float]]) -> float:
    """Behind one that does not count."""
    await measure()
    return statistics.median([await measure() for _ in range(NUM_TIMES)])


async def rows() -> list[dict[str, float | None]]:
    """One a size; seconds are medians, a pause is the longest of all."""
    with giver() as ask, tempfile.TemporaryDirectory() as folder:
        server = OwnServer(Path(folder), "--appendfsync", "everysec")
        await server.start()
        try:
            return [await row(ask, server.url, size) for size in SIZES]
        finally:
            server.kill()


async def row(ask: Callable[[int], ImageTicket], redis_url: str, size: int) -> dict[str, float | None]:
    """Of one size."""
    num_bytes = size * MIB
    pauses: list[float] = []

    async def direct() -> float:
        took_s, pause_s = await directly(ask, num_bytes)
        pauses.append(pause_s)
        return took_s

    async def threaded(measure: Callable[[int], float]) -> float:
        return await asyncio.to_thread(measure, num_bytes)

    direct_s = await median(direct)
    data = os.urandom(MIB) * size if size <= MAX_REDIS_MIB else b""
    redis_s = await median(lambda: through_redis(redis_url, data)) if data else None
    return {
        "mib": size,
        "direct_s": direct_s,
        "redis_s": redis_s,
        "socket_s": await median(lambda: threaded(over_a_socket)),
        "memory_s": await median(lambda: threaded(in_memory)),
        "direct_bytes_per_s": num_bytes / direct_s,
        "longest_pause_s": max(pauses),
    }


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Lines for a program.")
@click.option("--give", "gives", is_flag=True, hidden=True)
def main(*, as_json: bool, gives: bool) -> None:
    """Measure, or be the other process."""
    if gives:
        uvloop.run(give())
        return
    found = uvloop.run(rows())
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in found:
        click.echo("  ".join(f"{name} {value:.4g}" for name, value in one.items() if value is not None))


if __name__ == "__main__":
    main()
