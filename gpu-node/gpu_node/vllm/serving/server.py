"""The loop of a vLLM engine's process: commands of the agent and steps of vLLM, as they come, in one line."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gpu_node.engine.process.commands.commands import Commands
from gpu_node.engine.process.commands.reports import reports
from gpu_node.engine.process.connection import AgentGoneError, EngineConnection
from gpu_node.engine.process.image_files import ImageFiles
from gpu_node.engine.process.protocol.framing import ProtocolError
from gpu_node.engine.process.protocol.link_protocol import LinkCommandFrame, LinkRefused
from gpu_node.engine.process.protocol.protocol import Command, EngineReady, LoadModel, ModelFailed, Shutdown, TakeOut
from gpu_node.vllm.serving.engine import ModelsBusyError, VllmEngine
from gpu_node.vllm.serving.translation import LACKS
from gpu_node.vllm.words.border import CoreDiedError, CoreEvent, ModelRefusedError
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs

MAX_EVENTS = 1024
"""That wait for the loop; beyond it the readers wait."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CoreTold:
    """Of the vLLM that has a model."""

    model: str
    event: CoreEvent


ServerEvent = CoreTold | list[Command] | Exception
Inbox = queue.Queue[ServerEvent]


def read_commands(connection: EngineConnection, inbox: Inbox) -> threading.Thread:
    """Put what the agent says into the line, in a thread of its own, to the end of the stream or its first error."""

    def read() -> None:
        try:
            while True:
                inbox.put(connection.receive(wait_s=None))
        except (AgentGoneError, ProtocolError, OSError) as error:
            inbox.put(error)

    thread = threading.Thread(target=read, name="commands", daemon=True)
    thread.start()
    return thread


class VllmServer:
    """Serves one agent until it says `Shutdown` or is gone. A vLLM that dies ends the process, whatever it runs."""

    def __init__(
        self,
        connection: EngineConnection,
        engine: VllmEngine,
        inbox: Inbox,
        specs: ModelSpecs,
        device: str,
        clock: Callable[[], float],
    ) -> None:
        """``clock`` measures loads."""
        self._connection = connection
        self._engine = engine
        self._inbox = inbox
        self._specs = specs
        self._device = device
        self._clock = clock
        self._images = ImageFiles(connection.send, engine.release)
        self._commands = Commands(engine, connection.send, self._images)
        self._left: deque[Command] = deque()

    def run(self) -> None:
        """Take event after event. Raises `CoreDiedError` and `ProtocolError`."""
        try:
            self._connection.send(EngineReady(self._device, "vllm", list(LACKS), has_fixed_adapters=True))
            while self._take(self._next()):
                self._images.advance()
        except AgentGoneError as gone:
            log.info("engine ends", reason=str(gone))

    def _next(self) -> ServerEvent:
        """The next event; nothing is waited for while an image is being written."""
        if not self._images.is_writing:
            return self._inbox.get()
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            return []

    def _take(self, event: ServerEvent) -> bool:
        """False on `Shutdown`."""
        match event:
            case CoreTold(_, CoreDiedError() as died):
                raise died
            case CoreTold(model, step):
                self._report(model, step)
            case Exception():
                raise event
            case commands if commands:
                return self._carry_out(commands)
        return True

    def _report(self, model: str, step: CoreEvent) -> None:
        assert not isinstance(step, CoreDiedError)
        num_waiting = self._engine.num_waiting
        chunks = self._engine.take(model, step)
        if chunks or self._engine.num_waiting != num_waiting:
            for report in reports(chunks, self._engine.stats()):
                self._connection.send(report)
        if not self._engine.has_work:
            self._engine.check()

    def _carry_out(self, commands: list[Command]) -> bool:
        """In their order; the agent then learns what they changed."""
        self._left.extend(commands)
        while self._left:
            command = self._left.popleft()
            if isinstance(command, TakeOut):
                self._let_leave(command.request_ids)
            match self._commands.carry_out(deque([command])):
                case Shutdown():
                    return False
                case LoadModel(model, spec):
                    self._load(model, spec)
                case LinkCommandFrame(link):
                    self._connection.send(LinkRefused(link, f"no link {link}: a vLLM engine has none"))
        self._commands.report()
        return True

    def _let_leave(self, request_ids: list[str]) -> None:
        """Until vLLM has told of all that leave with their KV; what it brings meanwhile is told, commands wait."""
        self._engine.begin_eviction(request_ids)
        if self._engine.is_evicting:
            self._commands.report()  # what earlier commands ended is told before what steps bring
        while self._engine.is_evicting:
            match self._inbox.get():
                case list(commands):
                    self._left.extend(commands)
                case event:
                    self._take(event)

    def _load(self, name: str, spec: ModelSpec | None) -> None:
        started_s = self._clock()
        source = self._engine.tiers.get(name, "disk")
        try:
            model = self._engine.load_model(self._specs.told(name, spec))
        except KeyError:
            self._fail(name, f"model {name!r} is not in the configuration", is_unknown=True)
        except (ModelRefusedError, ModelsBusyError) as error:
            self._fail(name, str(error))
        else:
            load_s = 0.0 if source == "device" else self._clock() - started_s
            log.info("model loaded", model=name, num_blocks=model.num_blocks, load_s=round(load_s, 3))
            self._commands.loaded(model, load_s, source)

    def _fail(self, name: str, error: str, *, is_unknown: bool = False) -> None:
        log.error("model not loaded", model=name, error=error)
        self._connection.send(ModelFailed(name, error, is_unknown))
