"""The engine's end of the socket to its agent: blocking, framed, no threads."""

from __future__ import annotations

import select
import socket

from gpu_node.engine.process.framing import command_decoder, frame
from gpu_node.engine.process.protocol import Command, EngineEvent, EngineRefused

READ_BYTES = 1 << 18
MAX_READS = 64
"""Between two steps: so many reads and no more, so that a flood of commands cannot stop the steps."""
FRAME_WAIT_S = 0.005
"""Inside a frame, for so long the rest is waited for: a long prompt is larger than a socket holds, and would come by
one filling of it a step."""

SEND_TIMEOUT_S = 30.0
"""An agent that reads nothing for so long hangs: better to end and be started again than to compute for nobody."""


class AgentGoneError(ConnectionError):
    """The agent closed its end, or died."""


class EngineConnection:
    """Commands in, events out."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(SEND_TIMEOUT_S)
        self._socket = sock
        self._decoder = command_decoder()
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def send(self, event: EngineEvent | EngineRefused) -> None:
        """Send one event whole. Raises `AgentGoneError`, or `TimeoutError` after `SEND_TIMEOUT_S`."""
        try:
            self._socket.sendall(frame(event))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise AgentGoneError("the agent is gone") from error

    def receive(self, wait_s: float | None) -> list[Command]:
        """Commands that have come; none if none come within ``wait_s``, where that is not None.

        Raises `AgentGoneError` at the end of the stream, `ProtocolError` when it does not decode.
        """
        commands: list[Command] = []
        for _ in range(MAX_READS):
            if not self._readable.poll(self._timeout_ms(0.0 if commands else wait_s)):
                break
            commands += self._decoder.feed(self._read())
        return commands

    def _timeout_ms(self, wait_s: float | None) -> float | None:
        if wait_s is None:
            return None
        return 1000 * max(wait_s, FRAME_WAIT_S if self._decoder.num_buffered_bytes else 0.0)

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except ConnectionResetError as error:
            raise AgentGoneError("the agent is gone") from error
        if not data:
            torn = " inside a frame" if self._decoder.num_buffered_bytes else ""
            raise AgentGoneError(f"the agent closed the stream{torn}")
        return data
