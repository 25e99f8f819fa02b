"""The engine process's loop: commands from the agent, steps of the engine, events back. One thread, no asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.engine import Engine
from gpu_node.engine.process.commands import Commands
from gpu_node.engine.process.connection import AgentGoneError, EngineConnection
from gpu_node.engine.process.idle_check import IdleCheck
from gpu_node.engine.process.image_files import ImageFiles
from gpu_node.engine.process.link_commands import LinkCommands
from gpu_node.engine.process.protocol import Command, EngineReady, LoadModel, ModelFailed, Shutdown
from gpu_node.engine.process.reports import reports
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import SerialisedImage
from gpu_node.engine.residents import EngineBusyError
from shared.config.config import ConfigError
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs
from shared.files.model_file import AdapterFilesError, ModelFileError
from shared.messages.requests.payload import Payload
from shared.processes import garbage

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
        self._specs = specs
        self._device = device
        self._clock = clock
        self._images = ImageFiles(connection.send, engine.release)
        self._commands = LoggedCommands(engine, connection.send, self._images)
        self._links = LinkCommands(engine, connection.send)
        self._idle = IdleCheck(engine.check, clock)
        self._unix_clock = unix_clock
        self._unpiped: set[str] = set()  # models of which it has been said that no pipeline is known

    def run(self) -> None:
        """Step while there is work, with a look at the socket between steps; without work, wait for the socket."""
        try:
            self._connection.send(EngineReady(self._device))
            while self._take_commands(self._connection.receive(self._wait_s())):
                self._images.advance()
                if self._engine.has_work:
                    self._step()
        except AgentGoneError as gone:
            log.info("engine ends", reason=str(gone))

    def _wait_s(self) -> float | None:
        """For a command: not at all while there is work, a little while others are served whose device is asked to."""
        if self._engine.has_work or self._images.is_writing:
            return 0.0
        return SERVING_WAIT_S if self._engine.offload.serve() else None

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
                case LoadModel(model, adapters):
                    self._load(model, adapters)
                case None:
                    pass
                case about_links:
                    self._links.carry_out(about_links)
        if commands:
            self._commands.report()
            self._links.tell_news()
        return True

    def _load(self, name: str, adapters: Sequence[AdapterSpec] | None) -> None:
        started_s = self._clock()
        source = self._engine.tiers.get(name, "disk")
        try:
            model, broken = self._loaded(self._specs.spec(name, adapters))
        except KeyError:
            self._fail(name, f"model {name!r} is not in the configuration", is_unknown=True)
        except (ConfigError, ModelFileError, ModelTooLargeError, EngineBusyError) as error:
            self._fail(name, str(error))
        else:
            load_s = 0.0 if source == "device" else self._clock() - started_s
            took_s = round(self._clock() - started_s, 3)
            names = list(model.adapters)
            log.info(
                "model loaded", model=name, num_blocks=model.num_blocks, source=source, load_s=took_s, adapters=names
            )
            self._commands.loaded(model, load_s, source, broken)
            if source == "disk":
                garbage.settle()  # beside what loading took, its time is little
            if model.lacks_pipeline and name not in self._unpiped:
                self._unpiped.add(name)
                log.warning("no pipeline known: steps run plainly", model=name)

    def _loaded(self, spec: ModelSpec) -> tuple[LoadedModel, dict[str, str]]:
        """A model, without those of its adapters that cannot be used; and why not. Raises as `Engine.load_model`."""
        broken: dict[str, str] = {}
        while True:
            usable = tuple(one for one in spec.adapters if one.name not in broken)
            try:
                return self._engine.load_model(replace(spec, adapters=usable)), broken
            except AdapterFilesError as error:
                log.error("adapters not loaded", model=spec.name, error=str(error))
                broken |= error.problems

    def _fail(self, name: str, error: str, *, is_unknown: bool = False) -> None:
        log.error("model not loaded", model=name, error=error)
        self._connection.send(ModelFailed(name, error, is_unknown))
