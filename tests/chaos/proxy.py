"""A proxy in front of Redis with a port for each process, so that what happens on a line happens to one process only.

It forwards frame by frame and knows the name of each (`points`). Rules delay, cut and lose, and do what a fault wants
done just before a command reaches Redis, or when Redis has executed it and the reply has not arrived.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.chaos.points import Conversation
from tests.chaos.resp import FrameCutter, arguments

HOST = "127.0.0.1"
READ_BYTES = 1 << 16
_STEP_S = 0.05  # how often a line that is held looks whether it still is


@dataclass
class Rule:
    """Something that happens once, at a named point of a process's life."""

    process: str
    point: str
    moment: str
    """``before`` the command reaches Redis, or ``after`` Redis has executed it and before the reply arrives."""
    action: Callable[[], None]
    """Done to the process; the frame goes on unless ``loses``."""
    loses: bool = False
    """The frame is lost, and with it the connection."""
    skip: int = 0
    """So many such frames pass first."""
    fired: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, process: str, point: str, moment: str) -> bool:
        """Whether this frame is the one."""
        if self.fired.is_set() or (self.process, self.point, self.moment) != (process, point, moment):
            return False
        if self.skip:
            self.skip -= 1
            return False
        return True


class Line:
    """All connections of one process."""

    def __init__(self, proxy: Proxy, process: str) -> None:
        self.process = process
        self.is_cut = False
        """Connections are closed, new ones refused."""
        self.is_silent = False
        """Connections stay, and nothing goes through."""
        self.delay_s: Callable[[], float] | None = None
        """How long each command waits."""
        self.port = 0
        self._proxy = proxy
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen on a port of its own."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """No more connections."""
        if self._server is not None:
            self._server.close()
        self.drop()

    def drop(self) -> None:
        """Close every connection, as a broken network does."""
        for writer in list(self._writers):
            writer.transport.abort()

    def cut(self) -> None:
        """No way to Redis until `mend`."""
        self.is_cut = True
        self.drop()

    def mend(self) -> None:
        """As it was."""
        self.is_cut = self.is_silent = False
        self.delay_s = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        ends = [writer]
        self._writers.add(writer)
        try:
            with suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection(HOST, self._proxy.redis_port)
                ends.append(up_writer)
                self._writers.add(up_writer)
                await self._pass_on((reader, up_writer), (up_reader, writer))
        finally:  # of one that is closed while it connects, too
            for end in ends:
                self._writers.discard(end)
                end.transport.abort()

    async def _pass_on(
        self,
        forth: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Until one of the ends has closed."""
        names: deque[str] = deque()
        ways = [
            asyncio.create_task(self._requests(*forth, names)),
            asyncio.create_task(self._replies(*back, names)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: deque[str]) -> None:
        cutter, said = FrameCutter(), Conversation()
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                for frame in cutter.feed(data):
                    name = said.name(arguments(frame))
                    if self.delay_s is not None:
                        await asyncio.sleep(self.delay_s())
                    if not await self._passes(name, "before"):
                        return
                    names.append(name)
                    writer.write(frame)
                await writer.drain()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: deque[str]) -> None:
        cutter = FrameCutter()
        with suppress(ConnectionError):
            while data := await reader.read(READ_BYTES):
                for frame in cutter.feed(data):
                    if not await self._passes(names.popleft(), "after"):
                        return
                    writer.write(frame)
                await writer.drain()

    async def _passes(self, name: str, moment: str) -> bool:
        """Whether a frame goes on, once it may."""
        while self.is_silent:  # noqa: ASYNC110 - a line is silent for seconds
            await asyncio.sleep(_STEP_S)
        for rule in self._proxy.rules:
            if rule.meets(self.process, name, moment):
                rule.fired.set()
                self._proxy.caught = self.process
                rule.action()
                return not rule.loses
        return True


class Proxy:
    """All lines to one Redis."""

    def __init__(self, redis_port: int) -> None:
        self.redis_port = redis_port
        self.rules: list[Rule] = []
        self.caught = ""
        """The process that the last rule met."""
        self.lines: dict[str, Line] = {}

    async def line(self, process: str) -> Line:
        """The line of a process; it keeps its port over the lives of that process."""
        line = self.lines[process] = Line(self, process)
        await line.open()
        return line

    async def close(self) -> None:
        """End all."""
        for line in self.lines.values():
            await line.close()
