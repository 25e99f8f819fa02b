"""A node's life: one epoch after another, each with a fresh engine, until the process is asked to stop."""

from __future__ import annotations

import asyncio
import secrets
import time

import msgspec
import structlog
from redis.asyncio import Redis

from gpu_node.agent.core import AgentCore
from gpu_node.agent.engine_process import EngineDiedError, EngineProcess
from gpu_node.agent.epoch import Epoch, EpochOverError
from shared.config_engine import EngineOptions
from shared.errors import OperatorError

MAX_EPOCHS = 5  # epochs that may end within EPOCH_WINDOW_S before the process gives up, so that its supervisor sees it
EPOCH_WINDOW_S = 60.0

log = structlog.get_logger()


class NodeFailedError(OperatorError):
    """The engine dies again and again; restarting it here does not help."""


class Agent:
    """One node: its engine and its current epoch."""

    def __init__(self, redis: Redis, node: str, device: str, options: EngineOptions) -> None:
        self._redis = redis
        self._node = node
        self._device = device
        self._options = options
        self._engine: EngineProcess | None = None
        self._core: AgentCore | None = None

    @property
    def not_ready(self) -> str:
        """What is missing before this node serves, or ``""``."""
        if self._core is None:
            return "the engine is starting"
        if self._core.models.loaded is None:
            broken = "; ".join(self._core.models.broken.values())
            return broken or f"loading model {self._core.models.loading or '(none assigned yet)'}"
        return ""

    @property
    def core(self) -> AgentCore | None:
        """The decisions of the current epoch; None between two of them."""
        return self._core

    def status(self) -> dict[str, object]:
        """What an operator wants to see of this node."""
        core = self._core
        if core is None:
            return {"node": self._node, "device": self._device}
        beat = core.heartbeat()
        values = {name: msgspec.to_builtins(getattr(beat, name)) for name in beat.__struct_fields__}
        del values["traceparent"]
        return values | {
            "loading": core.models.loading,
            "broken_models": core.models.broken,
            "engine_pid": self._engine.pid if self._engine else None,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; what is unfinished then goes back to the queue."""
        stopping = asyncio.create_task(stop.wait())
        began: list[float] = []
        try:
            while not stop.is_set():
                now = time.monotonic()
                began = [*(start for start in began if start > now - EPOCH_WINDOW_S), now]
                if len(began) > MAX_EPOCHS:
                    raise NodeFailedError(f"{self._node}: {MAX_EPOCHS} epochs ended within {EPOCH_WINDOW_S:.0f} s")
                await self._serve_epoch(stopping)
        finally:
            stopping.cancel()

    async def _serve_epoch(self, stopping: asyncio.Task[bool]) -> None:
        epoch = f"{self._node}-{secrets.token_hex(4)}"
        log.info("epoch begins", epoch=epoch)
        self._engine = await EngineProcess.start(self._node)
        self._core = AgentCore(self._node, epoch, self._device, self._options)
        try:
            await Epoch(self._redis, self._core, self._engine, self._options.step_timeout_s).run(stopping)
        except (EpochOverError, EngineDiedError) as error:
            log.error("epoch over", epoch=epoch, reason=str(error))
        finally:
            self._core = None
            await self._engine.stop()
