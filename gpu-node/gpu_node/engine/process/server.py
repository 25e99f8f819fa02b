"""The engine process's loop: commands from the agent, steps of the engine, events back. One thread, no asyncio."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.engine import Engine, EngineBusyError
from gpu_node.engine.process.connection import AgentGoneError, EngineConnection
from gpu_node.engine.process.protocol import (
    AbortRequests,
    Command,
    EngineReady,
    HandOverImages,
    Image,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import OutputChunk
from shared.config.config import ClusterConfig
from shared.files.model_file import ModelFileError

log = structlog.get_logger()


class EngineServer:
    """Serves one agent until it says `Shutdown` or is gone. Whatever else goes wrong ends the process."""

    def __init__(
        self,
        connection: EngineConnection,
        engine: Engine,
        config: ClusterConfig,
        device: str,
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._config = config
        self._device = device
        self._clock = clock

    def run(self) -> None:
        """Step while there is work, with a look at the socket between steps; without work, wait for the socket."""
        try:
            self._connection.send(EngineReady(self._device))
            while self._take_commands(self._connection.receive(wait=not self._engine.has_work)):
                if self._engine.has_work:
                    self._step()
        except AgentGoneError as gone:
            log.info("engine ends", reason=str(gone))

    def _step(self) -> None:
        chunks = self._engine.step(self._clock())
        if chunks:
            self._connection.send(StepReport.of(chunks, self._engine.stats()))
        if not self._engine.has_work:
            self._engine.check()  # idle: time to see that no block was lost

    def _take_commands(self, commands: list[Command]) -> bool:
        """Carry out commands in their order; False on `Shutdown`. The agent then learns what they changed."""
        chunks: list[OutputChunk] = []
        for command in commands:
            match command:
                case Shutdown():
                    return False
                case LoadModel(model):
                    self._load(model)
                case RunAttempt(payload, image):
                    ended = self._engine.add(payload, image)
                    if ended and ended[-1].is_last:
                        log.info("request ends at once", request_id=payload.request_id, error=ended[-1].error)
                    chunks += ended
                case AbortRequests(request_ids):
                    self._engine.abort(request_ids)
                case Reset():
                    self._engine.reset()
                case TakeOut(request_ids):
                    last, kept = self._engine.evict(request_ids)
                    self._connection.send(StepReport.of(chunks + last, self._engine.stats()))
                    self._connection.send(TakenOut(kept, self._engine.stats()))
                    chunks = []
                case HandOverImages(request_ids):
                    for handed_over in self._engine.hand_over(request_ids):
                        self._connection.send(Image(handed_over.request_id, handed_over.data))
        if commands:
            self._connection.send(StepReport.of(chunks, self._engine.stats()))
        return True

    def _load(self, name: str) -> None:
        started_s = self._clock()
        source = self._engine.tiers.get(name, "disk")
        try:
            model = self._engine.load_model(self._config.model(name))
        except KeyError:
            self._fail(name, f"model {name!r} is not in the configuration")
        except (ModelFileError, ModelTooLargeError, EngineBusyError) as error:
            self._fail(name, str(error))
        else:
            load_s = 0.0 if source == "device" else self._clock() - started_s
            log.info("model loaded", model=name, num_blocks=model.num_blocks, source=source, load_s=round(load_s, 3))
            self._connection.send(
                ModelLoaded(
                    model=name,
                    num_blocks=model.num_blocks,
                    block_size=model.block_size,
                    block_bytes=model.block_bytes,
                    max_model_len=model.max_model_len,
                    load_s=load_s,
                    source=source,
                    tiers=self._engine.tiers,
                )
            )

    def _fail(self, name: str, error: str) -> None:
        log.error("model not loaded", model=name, error=error)
        self._connection.send(ModelFailed(name, error))
