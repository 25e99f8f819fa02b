"""Redis of the cluster: its own process and data, a wall clock that can be set, a log that can be cut."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.redis_server import find_server
from tests.chaos.clock import SetClock
from tests.chaos.disk import SmallDisk
from tests.chaos.resp import commands

HOST = "127.0.0.1"
START_S = 20.0  # a log of some MB is read in a fraction of that
_POLL_S = 0.02


class Server:
    """Starts where it was killed, on the data that it had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "redis"
        self.disk = SmallDisk(self.data)
        self.port = free_port(HOST)
        self.starts: list[int] = []
        """Bytes of the log with which each life began."""
        self.clock = SetClock(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Redis = Redis(host=HOST, port=self.port, socket_timeout=5, socket_connect_timeout=1)

    @property
    def client(self) -> Redis:
        """A connection that no fault of the lines concerns."""
        return self._client

    @property
    def aof(self) -> Path:
        """The log. It is never rewritten, so it has every write that ever took effect and was not cut off."""
        return self.data / "appendonlydir" / "appendonly.aof.1.incr.aof"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def is_dead(self) -> bool:
        """It runs no more, by itself or by us."""
        return self._process is None or self._process.poll() is not None

    async def start(self) -> None:
        """Begin, and return when it answers. `TimeoutError` when it does not, as with a disk that is full."""
        self.starts.append(self.aof.stat().st_size if self.aof.exists() else 0)
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "auto-aof-rewrite-percentage": "0",
        }
        command = [str(find_server()), *(part for name, value in options.items() for part in (f"--{name}", value))]
        with (self.folder / "logs" / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - takes a millisecond
                command, env=os.environ | self.clock.environment, stdout=log, stderr=log, start_new_session=True
            )
        async with asyncio.timeout(START_S):
            while not await self.answers():  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(_POLL_S)

    async def answers(self) -> bool:
        """Whether it answers now."""
        try:
            return bool(await self._client.ping())
        except (RedisError, OSError):
            return False

    def kill(self) -> None:
        """``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def truncate(self, keep_share: float, within_bytes: int) -> int:
        """Cut the log of the dead server behind some command of its tail; how many bytes are lost.

        ``keep_share`` of the last ``within_bytes`` are kept: 0 loses all of them, 1 none.
        """
        data = self.aof.read_bytes()
        oldest = max(0, len(data) - within_bytes)
        ends = transaction_ends(data)
        wanted = oldest + keep_share * (len(data) - oldest)
        keep = max((end for end in ends if end <= wanted), default=0)
        (self.folder / f"lost-{len(self.starts)}.aof").write_bytes(data[keep:])
        os.truncate(self.aof, keep)
        return len(data) - keep

    async def close(self) -> None:
        """End it for good."""
        await self._client.aclose()
        self.kill()
        self.clock.close()
        self.disk.close()


def transaction_ends(data: bytes) -> list[int]:
    """Where the log may be cut so that Redis takes it: not inside of a transaction, which it would drop as a whole."""
    ends, is_inside = [], False
    for end, command in commands(data):
        verb = command[0].upper()
        is_inside = verb == b"MULTI" or (is_inside and verb != b"EXEC")
        if not is_inside:
            ends.append(end)
    return ends
