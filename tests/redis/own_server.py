"""A Redis that a test may kill: its own process, on a port that stays the same, every write in its append-only file."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path

from redis.exceptions import RedisError

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.redis_server import find_server
from shared.bus.bus import connect
from tests.redis.waiting import until

HOST = "127.0.0.1"


class OwnServer:
    """Starts where it was killed, on the data it had."""

    def __init__(self, folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        """``options`` come last in the command, and so have the last word; ``environment`` is added to ours."""
        self._environment = os.environ | (environment or {})
        self.port = free_port(HOST)
        self.url = f"redis://{HOST}:{self.port}/0"
        # `always`: what was answered is in the file, so a test may say exactly what must survive
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", str(folder)]
        self._command = [str(find_server()), "--bind", HOST, "--port", str(self.port), *durable, *options]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Begin, and return when it answers."""
        self._launch()
        await until(self._answers)

    def kill(self) -> None:
        """``kill -9``."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def limit_files(self, max_bytes: int) -> None:
        """No file of it grows beyond this from now on, as on a full disk; RLIM_INFINITY: there is room again."""
        assert self._process is not None
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (max_bytes, resource.RLIM_INFINITY))

    def _launch(self) -> None:
        # Python ignores SIGXFSZ, and so shall the server: a write beyond the limit is an error then, and not its end
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, restore_signals=False, env=self._environment
        )

    async def _answers(self) -> bool:
        async with connect(self.url) as client:
            try:
                return bool(await client.ping())
            except RedisError:
                return False
