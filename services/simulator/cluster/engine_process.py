"""The engine process of a simulated node: commands between steps, steps that take their time, events to the agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpu_node.agent.decisions.models.models import DEVICE, DISK
from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.commands.commands import Commands
from gpu_node.engine.process.protocol.link_protocol import LinkCommandFrame
from gpu_node.engine.process.protocol.protocol import (
    Command,
    EngineEvent,
    LoadModel,
    ModelFailed,
    Shutdown,
    StepReport,
)
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node_engine import NodeEngine
from services.simulator.cluster.node_images import NodeImages
from services.simulator.devices.device import SimulatedDevice
from shared.config.engines.engine import ModelSpec


@dataclass(frozen=True, slots=True)
class Loading:
    """A model that was loaded."""

    start_s: float
    end_s: float
    model: str
    source: str
    """Where its weights were."""


@dataclass(slots=True)
class EngineWork:
    """What a node's engines have done, over all its epochs."""

    loadings: list[Loading] = field(default_factory=list)
    busy_s: float = 0.0
    """Time for which they have computed."""


@dataclass(frozen=True, slots=True)
class EngineHooks:
    """What an epoch of a node does for its engine."""

    hear: Callable[[EngineEvent], None]
    """Takes what the engine said."""
    feed: Callable[[StepReport | ModelFailed], None]
    """Tells the agent what is for nobody else."""
    named: Callable[[EngineEvent, LoadedModel], EngineEvent]
    """That a model is loaded, with how the node names its prefixes."""
    at: Callable[[float, Callable[[], None]], None]
    """Runs something at a time, as long as the epoch lasts."""


class SimulatedProcess:
    """Of one epoch."""

    def __init__(
        self,
        bus: MemoryBus,
        engine: NodeEngine,
        device: SimulatedDevice,
        models: Mapping[str, ModelSpec],
        images: NodeImages,
        agent: EngineHooks,
        events: list[EngineEvent],
        work: EngineWork,
    ) -> None:
        """``events``: what the engine has said and the agent has not heard; ``work`` is added to."""
        self._bus = bus
        self._engine = engine
        self._device = device
        self._models = models
        self._agent = agent
        self._events = events
        self._work = work
        self._told = Commands(engine, events.append, images)
        self._commands: deque[Command] = deque()
        self._is_busy = False
        self._step_end_s: float | None = None
        self._started_s = 0.0

    def tell(self, command: Command) -> None:
        """Commands of one time are read together, between two steps."""
        self._commands.append(command)
        if not self._is_busy:
            self._is_busy = True
            self._agent.at(self._bus.now, self._run)
        else:
            self.interrupt()

    def interrupt(self) -> None:
        """Somebody wants something of the engine: a step that runs ends as soon as it can."""
        if self._step_end_s is not None:
            self._step_until(self._engine.interrupt(self._bus.now))

    def catch_up(self) -> EngineStats | None:
        """The engine's state after the last step that is over; None where nothing runs, or it has been told already."""
        return self._engine.catch_up(self._bus.now) if self._step_end_s is not None else None

    def _run(self) -> None:
        """Between two steps: carry out commands, then compute until there is something to tell."""
        has_news = bool(self._commands)
        match self._told.carry_out(self._commands):
            case LoadModel(model):
                return self._load(model)
            case Shutdown() | LinkCommandFrame():
                raise AssertionError("a simulated engine dies with its node, and has no links")
        if has_news:
            self._told.report()
        self._is_busy = self._engine.has_work
        if self._is_busy:
            self._started_s = self._bus.now
            self._step_until(self._engine.start(self._bus.now))
        return self._pass_events()

    def _load(self, model: str) -> None:
        """What was to be told before is told first; other commands wait until the model is there."""
        self._told.report()
        source = self._engine.tiers.get(model, DISK)
        load_s = self._device.load_s(model, source)
        self._agent.at(self._bus.now + load_s, lambda: self._loaded(model, source, load_s))
        self._pass_events()

    def _loaded(self, model: str, source: str, load_s: float) -> None:
        try:
            loaded = self._engine.load_model(self._models[model])
        except ModelTooLargeError as error:
            self._agent.feed(ModelFailed(model, str(error)))
        else:
            if source != DEVICE:
                self._work.loadings.append(Loading(self._bus.now - load_s, self._bus.now, model, source))
            self._told.loaded(loaded, load_s, source)
            self._events.append(self._agent.named(self._events.pop(), loaded))
        self._told.report()
        self._pass_events()
        self._run()

    def _pass_events(self) -> None:
        events = self._events.copy()
        self._events.clear()
        for event in events:
            self._agent.hear(event)

    def _step_until(self, end_s: float) -> None:
        """The engine computes until then, unless it is interrupted again."""
        if end_s != self._step_end_s:
            self._step_end_s = end_s
            self._agent.at(end_s, lambda: self._stepped(end_s))

    def _stepped(self, end_s: float) -> None:
        if end_s != self._step_end_s:
            return  # it was interrupted before
        self._step_end_s = None
        self._work.busy_s += end_s - self._started_s
        self._agent.feed(StepReport.of(self._engine.finish(), self._engine.stats()))
        self._told.tell_growth()
        self._run()
