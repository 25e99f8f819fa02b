"""A master, a replica and sentinels of a test's own, and the ways in which one takes over from the other."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from cli.cluster.processes.ports import free_port
from cli.cluster.processes.redis_server import find_server
from tests.redis.waiting import until

HOST = "127.0.0.1"
SERVICE = "treadle"
NUM_SENTINELS = 3
DOWN_AFTER_MS = 500
FAIL_OVER_TIMEOUT_MS = 3000


class Server:
    """One server process; its files lie in a folder of its own."""

    def __init__(self, folder: Path, name: str, options: Sequence[str] = ()) -> None:
        self.port = free_port(HOST)
        self._folder = folder / f"{name}-{self.port}"
        self._folder.mkdir()
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Begin; ``more`` options are of this life."""
        own = [
            "--bind",
            HOST,
            "--port",
            str(self.port),
            "--dir",
            str(self._folder),
            "--save",
            "",
            "--appendonly",
            "yes",
        ]
        fast = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        self._launch([str(find_server()), *own, *fast, *self._options, *more])

    def start_sentinel(self, master: Server, quorum: int) -> None:
        """Begin as a sentinel that watches ``master``."""
        file = self._folder / "sentinel.conf"
        file.write_text(
            f"bind {HOST}\nport {self.port}\ndir {self._folder}\n"
            f"sentinel monitor {SERVICE} {HOST} {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} {FAIL_OVER_TIMEOUT_MS}\n"
        )
        self._launch([str(find_server()), str(file), "--sentinel"])

    def kill(self) -> None:
        """``kill -9``, frozen or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It stands still, and keeps its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> Redis:
        """Of this very server, whatever its role."""
        return Redis(host=HOST, port=self.port, protocol=2)

    async def answers(self) -> bool:
        """Whether it answers a ping from somebody without a name."""
        async with self.client() as anybody:
            try:
                return bool(await anybody.ping())
            except RedisError:
                return False

    async def says(self, **fields: object) -> bool:
        """Whether it answers, and INFO holds these values."""
        async with self.client() as client:
            try:
                info: dict[str, Any] = await client.info()
            except RedisError:
                return False
            return all(info.get(name) == value for name, value in fields.items())

    def _launch(self, command: list[str]) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log)


class Replicated:
    """Two servers, the second a replica of the first, and optionally sentinels."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.master = Server(folder, "server")
        self.replica = Server(folder, "server")
        self.sentinels: list[Server] = []

    @property
    def list_url(self) -> str:
        """The servers, of which one is master."""
        return f"redis://{HOST}:{self.master.port},{HOST}:{self.replica.port}/0"

    @property
    def sentinel_url(self) -> str:
        """The sentinels, and the master's name."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    async def start(self, num_sentinels: int = 0) -> None:
        """Begin, and return when the replica follows and the sentinels know it and each other."""
        self.master.start()
        await until(lambda: self.master.says(role="master"))
        self.replica.start("--replicaof", HOST, str(self.master.port))
        await until(self.is_replicated)
        self.sentinels = [Server(self._folder, "sentinel") for _ in range(num_sentinels)]
        for sentinel in self.sentinels:
            sentinel.start_sentinel(self.master, quorum=num_sentinels // 2 + 1)
        await until(self._are_known)

    async def is_replicated(self) -> bool:
        """Whether the replica has the master's data and follows."""
        return await self.replica.says(role="slave", master_link_status="up")

    async def promote(self) -> None:
        """As a person does it: the replica becomes master, the old master its replica."""
        async with self.replica.client() as new, self.master.client() as old:
            await new.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
            await old.execute_command("REPLICAOF", HOST, self.replica.port)  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """End everything."""
        for server in (*self.sentinels, self.replica, self.master):
            server.kill()

    async def _are_known(self) -> bool:
        """Whether every sentinel knows the replica and all others."""
        address = f"{HOST}:{self.master.port}"
        known = {"name": SERVICE, "status": "ok", "address": address, "slaves": 1, "sentinels": len(self.sentinels)}
        return all([await sentinel.says(master0=known) for sentinel in self.sentinels])
