"""The agent's end of the socket, blocking, with an engine of either kind at the other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpu_node.engine.process.protocol.framing import event_decoder, frame
from gpu_node.engine.process.protocol.protocol import (
    Command,
    EngineEvent,
    EngineRefused,
    ImageOpened,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    StepReport,
)

TIMEOUT_S = 60.0  # of one wait for the engine; only a broken engine comes near it
OURS = (sys.executable, "-m", "gpu_node.engine")


class Agent:
    """A blocking stand-in for the node agent's end."""

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.sock = sock
        self.process = process
        self._decoder = event_decoder()
        self._events: list[EngineEvent | EngineRefused] = []

    def send(self, *commands: Command) -> None:
        self.sock.sendall(b"".join(frame(command) for command in commands))

    def next(self) -> EngineEvent | EngineRefused:
        while not self._events:
            data = self.sock.recv(1 << 16)
            assert data, "the engine is gone"
            self._events = self._decoder.feed(data)
        return self._events.pop(0)

    def load(self, model: str) -> ModelLoaded | ModelFailed:
        self.send(LoadModel(model))
        answer = self.next()
        assert isinstance(answer, ModelLoaded | ModelFailed)
        assert isinstance(self.next(), StepReport)
        return answer

    def steps_until_end(self, request_id: str) -> list[StepReport]:
        steps: list[StepReport] = []
        while True:
            event = self.next()
            if isinstance(event, ImageOpened):
                continue
            assert isinstance(event, StepReport)
            steps.append(event)
            if any(chunk.request_id == request_id and chunk.finish_reason for chunk in event.chunks):
                return steps

    def exit_status(self) -> int:
        return self.process.wait(TIMEOUT_S)


@contextmanager
def process_of(config_path: Path, program: Sequence[str] = OURS, timeout_s: float = TIMEOUT_S) -> Iterator[Agent]:
    """A process that is up, and gone afterwards."""
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout_s)
    with theirs:
        command = [*program, "--node", "node-0", "--fd", str(theirs.fileno())]
        environment = {**os.environ, "TREADLE_CONFIG": str(config_path)}
        with (config_path.parent / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stderr=log)
    with process, ours:
        try:
            yield Agent(ours, process)
        finally:
            process.kill()
