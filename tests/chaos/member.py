"""One process of the cluster: started as `treadle up` starts it, killed, stopped, and looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Life:
    """One life of a process."""

    member: str
    pid: int
    began_s: float
    ended_s: float | None = None
    status: int | None = None
    """Exit status; negative is the signal."""


@dataclass
class Member:
    """A process that shall always run."""

    name: str
    kind: str
    """``gateway``, ``queue-manager``, ``scheduler``, ``kv-manager`` or ``node``."""
    argv: list[str]
    environment: dict[str, str]
    folder: Path
    url: str
    """Where it answers operators."""
    clients_url: str = ""
    """Where a gateway serves clients."""
    is_held: bool = False
    """Not to be started again for now."""
    is_stopped: bool = False
    lives: list[Life] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the life that runs."""
        return self._process.pid if self._process is not None else None

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    def start(self) -> None:
        """Begin a life."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.lives.append(Life(self.name, self._process.pid, time.monotonic()))

    def reap(self) -> bool:
        """Whether no life runs; notes how the last one ended."""
        if self._process is None:
            return True
        status = self._process.poll()
        if status is None:
            return False
        last = self.lives[-1]
        self.lives[-1] = Life(last.member, last.pid, last.began_s, time.monotonic(), status)
        self._process, self.is_stopped = None, False
        return True

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, not to what it started."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """``kill -9``."""
        self.signal(signal.SIGKILL)

    def ask_to_end(self) -> None:
        """SIGTERM, as a rolling upgrade sends it."""
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        """As a machine that hangs."""
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The machine is back."""
        self.signal(signal.SIGCONT)
        self.is_stopped = False

    def children(self) -> list[psutil.Process]:
        """What the process has started: a node's engine."""
        if self.pid is None:
            return []
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Kill it with all that it has started."""
        self.is_held = True
        family = self.children()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
                process.kill()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.reap()
