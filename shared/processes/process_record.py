"""Who a started process is. A pid alone is not enough: the kernel gives it to another process later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from shared.config.config import CONFIG_ENV

# The kernel counts a start in ticks since boot; as wall-clock time it moves a little when the clock is adjusted.
START_TIME_TOLERANCE_S = 1.0


@dataclass(frozen=True)
class ProcessRecord:
    """One process that `treadle up`, or a node provider, started: the leader of a session of its own."""

    pid: int
    create_time: float
    stage: int
    """Processes of a higher stage are started later and stopped earlier."""
    config_path: str
    """Its TREADLE_CONFIG: marks whatever it starts as part of this cluster."""

    def leader(self) -> psutil.Process | None:
        """The process itself, or None once it has ended (even if another has its pid now)."""
        try:
            process = psutil.Process(self.pid)
            return process if self._is_mine(process) and is_running(process) else None
        except psutil.NoSuchProcess:
            return None

    def family(self) -> list[psutil.Process]:
        """The leader, its descendants, and what a leader that was killed left behind in its session."""
        leader = self.leader()
        found = {process.pid: process for process in self._session()}
        if leader is not None:
            with suppress(psutil.NoSuchProcess):  # it ended just now; its session has been listed
                found |= {child.pid: child for child in leader.children(recursive=True)}
        return [process for process in found.values() if is_running(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        return abs(process.create_time() - self.create_time) <= START_TIME_TOLERANCE_S

    def _session(self) -> Iterator[psutil.Process]:
        """Living members of the session. Its number may be a stranger's by now, so each must carry our mark."""
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) != self.pid:
                    continue
                if process.pid == self.pid:
                    if self._is_mine(process):
                        yield process
                elif process.environ().get(CONFIG_ENV) == self.config_path:
                    yield process
            except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, PermissionError):
                continue  # it has ended, or belongs to another user: not ours to stop


def is_running(process: psutil.Process) -> bool:
    """Whether it still runs. A zombie has ended: only its parent has not looked yet."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
