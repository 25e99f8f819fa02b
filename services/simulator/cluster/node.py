"""A node in the simulator: the live agent core over an engine that knows how long its steps take."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from gpu_node.agent.decisions.actions import (
    AgentAction,
    AgentEvent,
    Beat,
    BlocksDue,
    DiscardImage,
    Drain,
    DropImages,
    FetchPrefix,
    GroupEntry,
    ImageAction,
    NewEpoch,
    Publish,
    Pull,
    ReadImage,
    Resume,
    SayBlocks,
    SayInventory,
    SayLease,
    SayOpened,
    StopFetch,
    Taken,
    TakeStock,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.evictions import IMAGE_LINGER_S
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.process.protocol.growth_protocol import ImageEnded, ImageGrown
from gpu_node.engine.process.protocol.prefix_protocol import PrefixCopied, PrefixTaken
from gpu_node.engine.process.protocol.protocol import (
    Command,
    EngineEvent,
    Image,
    ImageOpened,
    ModelFailed,
    StepReport,
)
from services.simulator.cluster.engine_process import EngineHooks, EngineWork, Loading, SimulatedProcess
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node_engine import NodeEngine
from services.simulator.cluster.node_images import NodeHooks, NodeImages
from services.simulator.cluster.node_prefixes import NodePrefixes, PrefixCounts
from services.simulator.devices.device import SimulatedDevice
from shared.bus import streams
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.message import Message
from shared.messages.nodes.nodes import BOTH, NodeGone, PhaseOption
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests import inventories, requests
from shared.messages.requests.requests import Finished

HEARTBEAT_S = 1.0
BLOCKS_S = 0.25
DRAIN_S = 5.0


class SimulatedNode:
    """One node over all its epochs; each epoch has a fresh core and a fresh engine, as live.

    What a model needs is known of simulated ones: a node tells from the start which of them do not fit its device.
    """

    def __init__(
        self,
        bus: MemoryBus,
        node: str,
        models: dict[str, ModelSpec],
        make_engine: Callable[[], NodeEngine],
        device: SimulatedDevice,
        options: EngineOptions,
        *,
        phases: PhaseOption = BOTH,
        tells_blocks: bool = False,
        exchanges_prefixes: bool = False,
    ) -> None:
        """``tells_blocks``: the KV manager hears what is cached here; ``exchanges_prefixes``: other nodes read it, and
        this one what they have. Both of an engine that knows what it computes."""
        self.node = node
        self.prefix_counts = PrefixCounts()
        self._exchanges_prefixes = exchanges_prefixes
        self._tells_blocks = tells_blocks
        self.kind = device.kind
        self.work = EngineWork()
        self._bus = bus
        self._models = models
        self._make_engine = make_engine
        self._options = options
        self._phases = phases
        self.device = device
        """What it can do."""
        self._num_epochs = 0
        self._is_alive = False
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        self._num_epochs += 1
        self._is_alive = True
        epoch = f"{self.node}-{self._num_epochs}"
        door = KvDoor(self.node, epoch) if self._exchanges_prefixes else None
        self.core = AgentCore(self.node, epoch, self.device.kind, self._options, self._phases, door)
        self.engine = self._make_engine()
        events: list[EngineEvent] = []
        hooks = NodeHooks(events.append, self._tell_of_epoch(), self._feed, self._at)
        self._images = NodeImages(self._bus, self.node, self.core.epoch, hooks, self.device.network_bytes_per_s)
        ends = self._bus, self._images, hooks, self.prefix_counts
        self._prefixes = NodePrefixes(door, *ends) if door is not None else None
        agent = EngineHooks(self._hear, self._feed, self._named, self._at)
        self._process = SimulatedProcess(
            self._bus, self.engine, self.device, self._models, self._images, agent, events, self.work
        )
        self._bus.subscribe(streams.node_inbox(self.node), self.receive)
        for model in self._models:
            if model not in self.device.models:
                self._feed(ModelFailed(model, f"{model!r} does not fit into the memory of {self.device.kind!r}"))
        self._beat(self._num_epochs)
        if self._tells_blocks:
            self._look_at_blocks()

    @property
    def is_alive(self) -> bool:
        """Whether it has begun an epoch that is not over."""
        return self._is_alive

    @property
    def loadings(self) -> list[Loading]:
        """Models that were loaded."""
        return self.work.loadings

    @property
    def num_swaps(self) -> int:
        """How many were."""
        return len(self.loadings)

    @property
    def busy_s(self) -> float:
        """Time for which its engine has computed."""
        return self.work.busy_s

    def die(self) -> None:
        """Fall silent: what ran is lost, and what was handed over and not fetched; no service is told."""
        self._fall_silent()
        self._bus.lose_images(self.core.epoch)

    def _fall_silent(self) -> None:
        chunks = self.engine.flush(self._bus.now)
        if chunks:
            self._feed(StepReport.of(chunks, self.engine.stats()))
        self._bus.unsubscribe(streams.node_inbox(self.node))
        if self._prefixes is not None:
            self._prefixes.close()
        self._is_alive = False
        self._num_epochs += 1  # whatever is still scheduled belongs to the past

    def redraw(self) -> None:
        """Answers end elsewhere (`NodeEngine.redraw`), behind the step that runs."""
        self._process.interrupt()
        self.engine.redraw()

    def leave(self) -> None:
        """Shut down politely: hand over what runs, as far as there is time."""
        if self._is_alive:
            self._later(DRAIN_S, self._say_goodbye)
            self._feed(Drain())

    def _say_goodbye(self) -> None:
        gone = NodeGone(node=self.node, epoch=self.core.epoch)
        self._fall_silent()
        epoch = self.core.epoch
        self._bus.at(self._bus.now + IMAGE_LINGER_S, lambda: self._bus.lose_images(epoch))
        for stream in (streams.SCHEDULER, streams.KV):
            self._bus.send(stream, gone)

    def say_inventory(self) -> None:
        """Redis has come back without the end of its log: say again what is here."""
        if self._is_alive:
            self._catch_up()
            self._feed(TakeStock())

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` unless the epoch is over by then."""
        self._at(self._bus.now + delay_s, action)

    def _at(self, time_s: float, action: Callable[[], None]) -> None:
        epoch = self._num_epochs
        self._bus.at(time_s, lambda: action() if epoch == self._num_epochs else None)

    def receive(self, message: Message, _: float) -> None:
        """Take a message from the inbox."""
        self._catch_up()
        self._feed(cast("AgentEvent", message))

    def _catch_up(self) -> None:
        """Tell the agent how it stands, as a live engine does after each step, before it decides anything."""
        stats = self._process.catch_up()
        if stats is not None:
            self._feed(StepReport([], stats))

    def _feed(self, event: AgentEvent) -> None:
        epoch = self._num_epochs
        for action in self.core.handle(event):
            self._do(action)
        if self.core.is_drained and epoch == self._num_epochs:
            self._say_goodbye()

    def _do(self, action: AgentAction) -> None:
        match action:
            case Pull(group, num_requests):
                taken = self._bus.pull(group, num_requests, self.node, self.core.epoch)
                entries = [GroupEntry(b"", enqueued, payload) for enqueued, payload in taken]
                self._feed(Taken(group, num_requests, entries))
            case Tell(command):
                self._process.tell(command)
            case Resume() | ReadImage() | FetchPrefix() | StopFetch() | DiscardImage() | DropImages():
                self._move(action)
            case Publish():
                self._publish(action)
            case SayInventory(running, parked):
                for part in inventories.of_node(self.node, self.core.epoch, running, parked):
                    self._bus.send(streams.QUEUE, part)
            case Beat(heartbeat):
                for stream in (streams.SCHEDULER, streams.KV):
                    self._bus.send(stream, heartbeat)
            case SayOpened(opened):
                self._bus.send(streams.QUEUE, opened)
            case SayBlocks(message) | SayLease(message):
                self._bus.send(streams.KV, message)
            case NewEpoch():
                self.die()
                self.start()

    def _move(self, action: ImageAction) -> None:
        if isinstance(action, FetchPrefix | StopFetch) and self._prefixes is not None:
            self._prefixes.do(action)
        self._images.do(action)

    def _publish(self, publish: Publish) -> None:
        for gateway, tokens in publish.tokens.items():
            self._bus.send(streams.tokens(gateway), tokens)
        if publish.finished:
            finished = Finished(node=self.node, epoch=self.core.epoch, requests=publish.finished)
            self._bus.send(streams.QUEUE, finished)
        if publish.evicted:
            evicted = requests.Evicted(node=self.node, epoch=self.core.epoch, requests=publish.evicted)
            self._bus.send(streams.QUEUE, evicted)

    def _beat(self, epoch: int) -> None:
        if epoch == self._num_epochs:
            self._catch_up()
            self._do(Beat(self.core.heartbeat()))
            self._later(HEARTBEAT_S, lambda: self._beat(epoch))

    def _look_at_blocks(self) -> None:
        self._feed(BlocksDue())
        self._later(BLOCKS_S, self._look_at_blocks)

    # --- the engine -----------------------------------------------------------------------------------------------

    def _tell_of_epoch(self) -> Callable[[Command], None]:
        """Commands to this epoch's engine and no later one."""
        epoch = self._num_epochs
        return lambda command: self._process.tell(command) if epoch == self._num_epochs else None

    def _named(self, loaded: EngineEvent, model: LoadedModel) -> EngineEvent:
        """With how prefixes are named, where other nodes ask for them."""
        return loaded if self._prefixes is None else self._prefixes.named(loaded, model)

    def _hear(self, event: EngineEvent) -> None:
        """What the engine said."""
        if isinstance(event, PrefixCopied | PrefixTaken):
            cast("NodePrefixes", self._prefixes).hear(event)
        elif isinstance(event, ImageEnded):
            self._images.end(event.number)
        elif isinstance(event, ImageGrown):
            begun = self._images.grow(event)
            if begun is not None:
                self._feed(begun)
        else:
            assert not isinstance(event, ImageOpened), "it opens nothing"
            self._feed(self._images.hold(event) if isinstance(event, Image) else event)
