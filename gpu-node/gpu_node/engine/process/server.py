"""The engine process's loop: commands from the agent, steps of the engine, events back. No asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands.commands import Commands
from gpu_node.engine.process.commands.link_commands import LinkCommands
from gpu_node.engine.process.commands.model_loads import LOOK_S, ModelLoads
from gpu_node.engine.process.commands.reports import reports
from gpu_node.engine.process.connection import AgentGoneError, EngineConnection
from gpu_node.engine.process.idle_check import IdleCheck
from gpu_node.engine.process.image_files import ImageFiles
from gpu_node.engine.process.protocol.protocol import Command, EngineReady, LoadModel, Shutdown
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import SerialisedImage
from shared.config.model_specs import ModelSpecs
from shared.messages.requests.payload import Payload

log = structlog.get_logger()

SERVING_WAIT_S = 0.0005
"""Between two looks at what others ask of a device that does not look by itself."""


class LoggedCommands(Commands):
    """Writes down which requests never ran."""

    def add(self, payload: Payload, image: SerialisedImage | None) -> list[OutputChunk]:
        """As `Commands.add`."""
        ended = super().add(payload, image)
        if ended and ended[-1].is_last:
            log.info("request ends at once", request_id=payload.request_id, error=ended[-1].error)
        return ended


class EngineServer:
    """Serves one agent until it says `Shutdown` or is gone. Whatever else goes wrong ends the process."""

    def __init__(
        self,
        connection: EngineConnection,
        engine: Engine,
        specs: ModelSpecs,
        device: str,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        """``clock`` measures; ``unix_clock`` tells how long requests have waited, at other nodes too."""
        self._connection = connection
        self._engine = engine
        self._device = device
        self._images = ImageFiles(connection.send, engine.release)
        self._commands = LoggedCommands(engine, connection.send, self._images)
        self._loads = ModelLoads(engine, specs, self._commands, connection.send, clock)
        self._links = LinkCommands(engine, connection.send)
        self._idle = IdleCheck(engine.check, clock)
        self._unix_clock = unix_clock

    def run(self) -> None:
        """Step while there is work, with a look at the socket between steps; without work, wait for the socket."""
        try:
            self._connection.send(EngineReady(self._device))
            while self._take_commands(self._connection.receive(self._wait_s())):
                self._images.advance()
                if self._loads.look():
                    self._commands.report()
                if self._engine.has_work:
                    self._step()
                    self._commands.tell_growth()
        except AgentGoneError as gone:
            log.info("engine ends", reason=str(gone))
        finally:
            self._loads.close()

    def _wait_s(self) -> float | None:
        """For a command: not at all while there is work, a little while others are served whose device is asked to."""
        if self._engine.has_work or self._images.is_writing:
            return 0.0
        if self._engine.offload.serve():
            return SERVING_WAIT_S
        return LOOK_S if self._loads.is_under_way else None

    def _step(self) -> None:
        chunks = self._engine.step(self._unix_clock())
        if chunks:
            for report in reports(chunks, self._engine.stats()):
                self._connection.send(report)
        self._links.tell_news()
        if not self._engine.has_work:
            self._idle.hear_idle()

    def _take_commands(self, commands: list[Command]) -> bool:
        """Carry out commands in their order; False on `Shutdown`. The agent then learns what they changed."""
        left = deque(commands)
        while left:
            match self._commands.carry_out(left):
                case Shutdown():
                    return False
                case LoadModel(model, spec):
                    self._loads.begin(model, spec)
                case None:
                    pass
                case about_links:
                    self._links.carry_out(about_links)
        if commands:
            self._commands.report()
            self._links.tell_news()
        return True
