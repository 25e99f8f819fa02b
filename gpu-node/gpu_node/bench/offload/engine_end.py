"""One engine process, and what it says, for whoever watches several of them in one thread."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gpu_node.engine.border.links import LinkRefusedError
from gpu_node.engine.process.protocol import Command, EngineEvent, EngineRefused, LinkRefused, event_decoder, frame
from shared.errors import OperatorError

READ_BYTES = 1 << 20
ANSWER_TIMEOUT_S = 60.0
"""Of whatever is waited for: loading a model takes longest."""

Event = TypeVar("Event", bound=EngineEvent)


class EngineGoneError(OperatorError):
    """An engine process has ended, or does not answer."""


class EngineEnd:
    """The agent's end of the socket; events that nobody has asked for go to ``hear``."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self.name = name
        self.process = process
        self.hear: Callable[[EngineEvent], None] = lambda event: None
        self._socket = sock
        self._decoder = event_decoder()
        self._is_watched = select.poll()
        self._is_watched.register(sock, select.POLLIN)
        self._kinds: tuple[type[EngineEvent], ...] = ()
        self._answer: EngineEvent | None = None

    def send(self, *commands: Command) -> None:
        """Say these, in their order."""
        self._socket.sendall(b"".join(map(frame, commands)))

    def listen(self, timeout_s: float = 0.0) -> bool:
        """Hear what has come, or comes within ``timeout_s``; whether anything did. Raises `EngineGoneError`."""
        if not self._is_watched.poll(timeout_s * 1000):
            return False
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise EngineGoneError(f"engine {self.name} has ended")
        for event in self._decoder.feed(data):
            if isinstance(event, EngineRefused):
                raise EngineGoneError(f"engine {self.name}: {event.reason}")
            if self._answer is None and isinstance(event, self._kinds):
                self._answer = event
            else:
                self.hear(event)
        return True

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
    name: str, config: Path, cpus: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> Iterator[EngineEnd]:
    """An engine on node ``name`` of a configuration, all its threads on ``cpus``; gone at the end."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "gpu_node.engine", "--node", name, "--fd", str(theirs.fileno())]
        before = os.sched_getaffinity(0)
        try:
            if cpus:
                os.sched_setaffinity(0, cpus)  # children stay where their parent is
            with (config.parent / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603
                    command,
                    env={**os.environ, "TREADLE_CONFIG": str(config), **(environment or {})},
                    pass_fds=[theirs.fileno()],
                    stderr=log,
                )
        finally:
            os.sched_setaffinity(0, before)
    with process, ours:
        try:
            yield EngineEnd(name, process, ours)
        finally:
            process.kill()
