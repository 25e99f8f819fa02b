"""One engine process, and what it says, for a thread that watches several of them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gpu_node.engine.border.links import LinkRefusedError
from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.link_protocol import LinkRefused
from gpu_node.engine.process.protocol.protocol import Command, EngineEvent, EngineRefused, ModelFailed
from shared.errors import OperatorError

READ_BYTES = 1 << 20
ANSWER_TIMEOUT_S = 180.0
"""Of whatever is waited for: loading a model takes longest."""

ROOM_WAIT_S = 0.002
"""For an engine that is in the midst of a command: it takes the rest at once, if it is not in a step."""

LAST_LINES = 5

Event = TypeVar("Event", bound=EngineEvent)


class EngineGoneError(OperatorError):
    """An engine process has ended, or does not answer."""


class EngineEnd:
    """The agent's end of the socket; events that were not asked for go to ``hear``."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], sock: socket.socket, log: Path) -> None:
        self.name = name
        self.process = process
        self._log = log
        self.hear: Callable[[EngineEvent], object] = bool
        self._socket = sock
        self._decoder = event_decoder()
        self._is_watched = select.poll()
        self._is_watched.register(sock, select.POLLIN)
        self._has_room = select.poll()
        self._has_room.register(sock, select.POLLOUT)
        self._unsent = bytearray()
        self._unheard: deque[EngineEvent | EngineRefused] = deque()
        sock.setblocking(False)
        self._kinds: tuple[type[object], ...] = ()
        self._answer: EngineEvent | None = None

    def send(self, *commands: Command) -> None:
        """Say these, in their order: what the engine does not take at once goes out while it is listened to.

        So the caller does not wait for an engine in the midst of a step, while another one wants to be heard.
        """
        self._unsent += b"".join(map(frame, commands))
        self._flush()

    def _flush(self) -> None:
        num_sent = 0
        try:
            with memoryview(self._unsent) as unsent:
                while num_sent < len(unsent) and self._has_room.poll(ROOM_WAIT_S * 1000):
                    num_sent += self._socket.send(unsent[num_sent:])
        except OSError as error:
            raise self._gone() from error
        del self._unsent[:num_sent]

    def listen(self, timeout_s: float = 0.0) -> bool:
        """Hear what has come, or comes within ``timeout_s``; whether anything did. Raises `EngineGoneError`."""
        self._flush()
        if not self._unheard and self._is_watched.poll(timeout_s * 1000):
            self._read()
        if not self._unheard:
            return False
        while self._unheard:
            event = self._unheard.popleft()
            if isinstance(event, EngineRefused):
                raise EngineGoneError(f"engine {self.name}: {event.reason}")
            if isinstance(event, ModelFailed):
                raise EngineGoneError(f"engine {self.name}: {event.error}")
            if self._answer is None and isinstance(event, self._kinds):
                self._answer = event
            else:
                self.hear(event)
        return True

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise self._gone()
        self._unheard += self._decoder.feed(data)

    def _gone(self) -> EngineGoneError:
        try:
            status = self.process.wait(ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return EngineGoneError(f"engine {self.name} hears nothing any more")
        last = self._log.read_text("utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return EngineGoneError("\n".join([f"engine {self.name} has ended with status {status}:", *last]))

    def ask(self, kind: type[Event], command: Command | None = None) -> Event:
        """Say something and wait for an answer of that kind. `LinkRefusedError` for a refusal; `EngineGoneError`."""
        self._kinds, self._answer = (kind, LinkRefused), None
        if command is not None:
            self.send(command)
        end_s = time.monotonic() + ANSWER_TIMEOUT_S
        while self._answer is None:
            if time.monotonic() > end_s:
                raise EngineGoneError(f"engine {self.name} gives no {kind.__name__}")
            self.listen(0.1)
        answer, self._kinds = self._answer, ()
        if not isinstance(answer, kind):
            assert isinstance(answer, LinkRefused)
            raise LinkRefusedError(answer.reason)
        return answer


@contextmanager
def engine_end(
    name: str,
    config: Path,
    cpus: Sequence[int] = (),
    module: str = "gpu_node.engine",
) -> Iterator[EngineEnd]:
    """An engine on node ``name`` of a configuration, all its threads on ``cpus``; gone at the end.

    ``module``: that the process runs, with the arguments of this one.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", module, "--node", name, "--fd", str(theirs.fileno())]
        before = os.sched_getaffinity(0)
        try:
            if cpus:
                os.sched_setaffinity(0, cpus)  # children stay where their parent is
            log_file = config.parent / f"{name}.log"
            with log_file.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    env={**os.environ, "TREADLE_CONFIG": str(config)},
                    pass_fds=[theirs.fileno()],
                    stderr=log,
                )
        finally:
            os.sched_setaffinity(0, before)
    with process, ours:
        try:
            yield EngineEnd(name, process, ours, log_file)
        finally:
            process.kill()
