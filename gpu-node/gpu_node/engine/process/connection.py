"""The engine's end of the socket to its agent: blocking, framed, no threads."""

from __future__ import annotations

import select
import socket
from time import monotonic

from gpu_node.engine.process.protocol.framing import MAX_FRAME_BYTES, command_decoder, frame
from gpu_node.engine.process.protocol.protocol import Command, EngineEvent, EngineRefused

READ_BYTES = 1 << 18
MAX_READS = 64
"""Between two steps: so many reads and no more, so that a flood of commands cannot stop the steps."""
FRAME_WAIT_S = 0.005
"""Inside a frame, for so long the rest is waited for: a long prompt is larger than a socket holds, and would come by
one filling of it a step."""

SEND_TIMEOUT_S = 600.0
"""An agent that reads nothing for so long hangs: better to end and be started again than to compute in vain. One that
waits for a Redis that is away reads nothing either, and an engine that ended then would lose all that it has."""
MAX_READ_AHEAD_BYTES = 2 * MAX_FRAME_BYTES
"""Of commands that come while an event is sent: any command, and what was begun before it."""


class AgentGoneError(ConnectionError):
    """The agent closed its end, or died."""


class EngineConnection:
    """Commands in, events out."""

    def __init__(self, sock: socket.socket, *, reads_ahead: bool = True) -> None:
        """``reads_ahead=False`` where a thread of its own receives while another sends."""
        sock.setblocking(False)
        self._socket = sock
        self._reads_ahead = reads_ahead
        self._decoder = command_decoder()
        self._ahead: list[Command] = []
        self._num_ahead_bytes = 0

    def send(self, event: EngineEvent | EngineRefused) -> None:
        """Send one event whole. Raises `AgentGoneError`, or `TimeoutError` after `SEND_TIMEOUT_S`.

        An agent that is behind may be writing a long command itself, and read no event before that is taken. So
        commands that come meanwhile are read, and `receive` has them.
        """
        left = memoryview(frame(event))
        until_s = monotonic() + SEND_TIMEOUT_S
        while left := left[self._write(left) :]:
            is_room = self._reads_ahead and self._num_ahead_bytes < MAX_READ_AHEAD_BYTES
            came = self._wait(select.POLLOUT | (select.POLLIN if is_room else 0), until_s - monotonic())
            if came & select.POLLIN:
                data = self._read()
                self._num_ahead_bytes += len(data)
                self._ahead += self._decoder.feed(data)
            elif not came:
                raise TimeoutError(f"the agent has read nothing for {SEND_TIMEOUT_S:g} s")

    def _write(self, data: memoryview) -> int:
        """As many bytes as the socket takes now."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError) as error:
            raise AgentGoneError("the agent is gone") from error

    def _wait(self, events: int, timeout_s: float | None) -> int:
        """Which of these have come; 0 after ``timeout_s``."""
        poll = select.poll()
        poll.register(self._socket, events)
        found = poll.poll(None if timeout_s is None else 1000 * max(timeout_s, 0.0))
        return found[0][1] if found else 0

    def receive(self, wait_s: float | None) -> list[Command]:
        """Commands that have come; none if none come within ``wait_s``, where that is not None.

        Raises `AgentGoneError` at the end of the stream, `ProtocolError` when it does not decode.
        """
        commands, self._ahead, self._num_ahead_bytes = self._ahead, [], 0
        for _ in range(MAX_READS):
            if not self._wait(select.POLLIN, self._timeout_s(0.0 if commands else wait_s)):
                break
            commands += self._decoder.feed(self._read())
        return commands

    def _timeout_s(self, wait_s: float | None) -> float | None:
        if wait_s is None:
            return None
        return max(wait_s, FRAME_WAIT_S if self._decoder.num_buffered_bytes else 0.0)

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except ConnectionResetError as error:
            raise AgentGoneError("the agent is gone") from error
        if not data:
            torn = " inside a frame" if self._decoder.num_buffered_bytes else ""
            raise AgentGoneError(f"the agent closed the stream{torn}")
        return data
