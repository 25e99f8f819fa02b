"""Redis itself: killed, stopped, without the tail of its log, full, with a clock that is set, on a full disk."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from tests.chaos.faults.fault import Kind, Scene, SkippedError, last

DOWN_S = (0.3, 4.0)
TAIL_BYTES = 64 << 10  # of the log: what a busy second of this load writes
FULL_BYTES = 16 << 10  # above what is used: the next few requests fill it


async def _kill(scene: Scene) -> None:
    scene.cluster.server.kill()
    await last(scene, scene.duration(*DOWN_S))
    await scene.cluster.server.start()


async def _truncate(scene: Scene) -> None:
    """A crash of the machine: what `everysec` had not written yet is gone."""
    server = scene.cluster.server
    server.kill()
    lost = await asyncio.to_thread(server.truncate, scene.random.random(), TAIL_BYTES)
    scene.note(f"{lost} bytes of the log lost")
    await last(scene, scene.duration(*DOWN_S))
    await server.start()


async def _stop(scene: Scene) -> None:
    server = scene.cluster.server
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        await last(scene, scene.duration(1.0, 12.0))
    finally:
        os.kill(pid, signal.SIGCONT)


async def _fill(scene: Scene) -> None:
    """No memory is left, until an operator gives some."""
    client = scene.cluster.server.client
    used = int((await client.info("memory"))["used_memory"])
    await client.config_set("maxmemory", used + FULL_BYTES)
    try:
        await last(scene, scene.duration(2.0, 20.0))
    finally:
        await client.config_set("maxmemory", 0)


async def _fill_disk(scene: Scene) -> None:
    """Redis refuses all that writes, until there is room."""
    disk = scene.cluster.server.disk
    if disk.why_not:
        raise SkippedError(disk.why_not)
    await asyncio.to_thread(disk.fill)
    try:
        await last(scene, scene.duration(2.0, 20.0))
    finally:
        disk.relieve()


def _step(seconds: float) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        """The wall clock steps and stays there for a while; then it is put right, which is a step the other way."""
        clock = scene.cluster.server.clock
        if clock.why_not:
            raise SkippedError(clock.why_not)
        clock.set(seconds)
        try:
            await last(scene, scene.duration(3.0, 20.0))
        finally:
            clock.set(0)

    return inject


KINDS = [
    Kind("kill-redis", _kill, is_of_redis=True),
    Kind("stop-redis", _stop, is_of_redis=True),
    Kind("redis-truncated", _truncate, is_of_redis=True),
    Kind("redis-full", _fill, is_of_redis=True),
    Kind("disk-full", _fill_disk, is_of_redis=True),
    Kind("clock-plus-1s", _step(1), is_of_redis=True),
    Kind("clock-minus-1s", _step(-1), is_of_redis=True),
    Kind("clock-plus-10min", _step(600), is_of_redis=True),
    Kind("clock-minus-10min", _step(-600), is_of_redis=True),
]
