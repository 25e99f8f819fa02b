"""How a server takes its connections: many in one round of the event loop, but not so many that the round is long.

uvloop takes one a round (libuv does), asyncio as many as may wait. With one, a crowd that finds the rounds busy is
taken at a few hundred a second: its connections fill the kernel's queue and are dropped there, and a probe that asks
whether the process is alive stands behind all of them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import cast

import structlog
from aiohttp import web

# Connections that the kernel has made and that wait to be taken. Where there are more, it drops them and their clients
# try again after one second, then three. The kernel's own limit holds as well (`net.core.somaxconn`, 4,096 on Linux).
BACKLOG = 4096

# A connection costs 0.1 ms until its request is being read, so a round is some 13 ms longer for them. Who asks whether
# the process is alive stands behind all that came before, so a crowd is taken quickly and waits where it is known.
ACCEPTS_A_ROUND = 128

RETRY_S = 1.0  # no files are left for further connections: those that wait are looked at again then
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_GONE = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO)  # the client has left meanwhile, or a firewall says no

log = structlog.get_logger()


class ManyAtATime(web.BaseSite):
    """A site of aiohttp on a socket that is bound already; closing it is the site's business."""

    def __init__(self, runner: web.BaseRunner, listener: socket.socket) -> None:
        super().__init__(runner)
        self._listener = listener
        self._acceptor: Acceptor | None = None

    @property
    def name(self) -> str:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}"

    async def start(self) -> None:
        """Take connections from now on."""
        await super().start()
        assert self._runner.server is not None
        self._acceptor = Acceptor(self._listener, self._runner.server)
        self._server = cast("asyncio.AbstractServer", self._acceptor)  # as far as aiohttp asks: sockets, and close

    async def stop(self) -> None:
        """Take no more; those that have been taken go on."""
        await super().stop()
        if self._acceptor is not None:
            await self._acceptor.wait_closed()


class Acceptor:
    """Takes the connections of a socket; ``make`` makes the protocol of each."""

    def __init__(self, listener: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self.sockets = [listener]
        self._listener = listener
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Take no more."""
        if not self.sockets:
            return
        self.sockets = []
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        """Until all that were taken have their protocol."""
        while self._opening:
            await asyncio.wait(self._opening)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_ROUND):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if error.errno not in _NO_ROOM:
                    raise
                log.error("no room for further connections", error=error.strerror, retry_s=RETRY_S)
                self._loop.remove_reader(self._listener)  # or it would be told of them in each round
                self._retry = self._loop.call_later(RETRY_S, self._loop.add_reader, self._listener, self._accept)
                return
            connection.setblocking(False)
            task: asyncio.Task[object] = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()  # it was reset before it was read from
