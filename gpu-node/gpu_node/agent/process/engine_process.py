"""The engine as a child process: started, spoken to over a socket pair, noticed when it dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import structlog

from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.protocol import Command, EngineEvent, EngineRefused, Shutdown
from shared.errors import OperatorError

READ_BYTES = 1 << 16
STATUS_TIMEOUT_S = 5.0  # an engine that has closed its socket is about to be gone
STOP_TIMEOUT_S = 10.0  # a step of a large batch may be running when the engine is asked to stop

log = structlog.get_logger()


class EngineDiedError(Exception):
    """The engine process has ended; what it ran is lost."""


class EngineRefusedError(OperatorError):
    """The engine cannot run here as it is configured; another try would end alike."""


class EngineProcess:
    """One life of an engine. After `EngineDiedError` it is of no more use: `stop` it and start another."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._frames = event_decoder()

    @classmethod
    async def start(cls, command: Sequence[str]) -> EngineProcess:
        """Start ``command`` with one end of a socket pair; `EngineRefusedError` where there is no such program."""
        ours, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            try:
                process = await asyncio.create_subprocess_exec(*command, "--fd", str(fd), pass_fds=[fd])
            except OSError as error:
                ours.close()
                raise EngineRefusedError(f"{command[0]} cannot be started: {error.strerror}") from error
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        log.info("engine started", pid=process.pid)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    async def send(self, command: Command) -> None:
        """Hand a command over; waits while the engine is too far behind to read it."""
        if self._writer.is_closing():  # uvloop refuses to write then, with an error of its own kind
            raise await self._death()
        try:
            self._writer.write(frame(command))
            await self._writer.drain()
        except ConnectionError as error:
            raise await self._death() from error

    async def events(self) -> list[EngineEvent]:
        """The next ones; `EngineDiedError` at the end of the stream, `EngineRefusedError` with the engine's reason."""
        while True:
            try:
                data = await self._reader.read(READ_BYTES)
            except ConnectionError as error:
                raise await self._death() from error
            if not data:
                raise await self._death()
            events: list[EngineEvent] = []
            for event in self._frames.feed(data):
                if isinstance(event, EngineRefused):
                    raise EngineRefusedError(event.reason)
                events.append(event)
            if events:
                return events

    async def _death(self) -> EngineDiedError:
        """How it ended: its socket is closed a moment before the system says."""
        try:
            return EngineDiedError(
                f"the engine ended with status {await asyncio.wait_for(self._process.wait(), STATUS_TIMEOUT_S)}"
            )
        except TimeoutError:
            return EngineDiedError("the engine closed its socket")

    def kill(self) -> None:
        """End the process at once; `events` tells that it has ended."""
        if self._process.returncode is None:
            self._process.kill()

    async def stop(self) -> None:
        """End the engine: politely, then by force."""
        if not self._writer.is_closing():  # else it has closed its end, and its process is about to be gone
            self._writer.write(frame(Shutdown()))
        self._writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            log.warning("engine killed", pid=self.pid)
            self._process.kill()
            await self._process.wait()
