"""Notices an engine that hangs: its process lives and has work, and nothing comes from it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.process.engine_process import EngineProcess

LOOK_S = 1.0

log = structlog.get_logger()


class EngineWatch:
    """Ends the engine of an epoch when a step takes longer than it may; from there on it has died like any other."""

    def __init__(self, core: AgentCore, engine: EngineProcess, step_timeout_s: float) -> None:
        self._core = core
        self._is_held_up = False
        self._engine = engine
        self._step_timeout_s = step_timeout_s
        self._silent_s = 0.0

    def heard(self) -> None:
        """Something came from the engine."""
        self._silent_s = 0.0

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """The core hears nothing meanwhile, so what it awaits may have come: time that passes says nothing."""
        self._is_held_up = True
        try:
            yield
        finally:
            self._is_held_up = False

    def look(self, seconds: float) -> None:
        """Time has passed. While the engine has nothing to do, or loads a model, its silence says nothing."""
        if not self._core.awaits_step:
            self._silent_s = 0.0
        elif not self._is_held_up:
            self._silent_s += seconds
        if self._silent_s >= self._step_timeout_s:
            log.error("engine hangs, killed", pid=self._engine.pid, silent_s=self._silent_s)
            self._engine.kill()
            self._silent_s = 0.0

    async def run(self) -> None:
        """Look again and again. Time in which this process was stopped itself does not count."""
        clock = asyncio.get_running_loop().time
        looked_at_s = clock()
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = clock()
            self.look(min(now_s - looked_at_s, 2 * LOOK_S))
            looked_at_s = now_s
