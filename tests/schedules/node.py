"""A node: the live agent core, and around it what `gpu_node.agent.process.epoch` does, epoch after epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import NoReturn, cast

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
    ImageBegun,
    ImageFetched,
    ImageHeld,
    NewEpoch,
    Publish,
    Pull,
    ReadImage,
    Resume,
    SayBlocks,
    SayInventory,
    SayOpened,
    StopFetch,
    Taken,
    TakeStock,
    Tell,
)
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.process.epoch import BLOCKS_S, HEARTBEAT_S
from gpu_node.agent.process.node_inbox import BACKOFF_S, MAX_BACKOFF_S
from gpu_node.engine.process.protocol.growth_protocol import ImageEnded, ImageGrown
from gpu_node.engine.process.protocol.prefix_protocol import PrefixCopied, PrefixTaken
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, EngineEvent, Image, ImageOpened
from shared.bus import streams
from shared.config.engines.engine import EngineOptions
from shared.messages.memory.blocks import BlockNews, TellBlocks
from shared.messages.message import Message
from shared.messages.nodes.nodes import BOTH, Fence, Heartbeat, Load, NodeGone, PhaseOption, Serve
from shared.messages.requests import inventories, requests
from shared.messages.requests.requests import Abort, Attempt, Evict, Finished, KvOpened, ReadAhead, VirtualQueue
from tests.schedules.agenda import Killed, Signal, sleep, wait
from tests.schedules.cached import BLOCK_SIZE, CachedPrefixes
from tests.schedules.doors import Doors
from tests.schedules.engine import Engine, Speed
from tests.schedules.keyspace import EntryId
from tests.schedules.node_prefixes import NodePrefixes
from tests.schedules.orders import Order
from tests.schedules.process import Process, World
from tests.schedules.reader import Reader
from tests.schedules.redis_model import RedisAwayError

DRAINED = "drained"
START_S = 0.5  # from the end of an epoch to the next: an engine process has to start
LARGE_TOKEN_BYTES = 10 << 20  # of KV: 1 ms over the network, as long as nobody has measured that
FAST_COPY_BYTES_PER_S = 1e13  # out of such a device: whatever has tokens left is worth moving
NEW_WEIGHTS = 0.3  # chance of an epoch that the model's files are others than before


class NodeProcess(Process):
    """One node."""

    def __init__(
        self,
        world: World,
        name: str,
        options: EngineOptions,
        speed: Speed,
        orders: Mapping[str, Order],
        kv_format: str = "",
        phases: PhaseOption = BOTH,
        *,
        reads_ahead: bool = False,
    ) -> None:
        """``reads_ahead``: KV is large, and prompts take several steps, so that it pays to read it meanwhile."""
        super().__init__(world, name)
        self._reads_ahead = reads_ahead
        self.num_epochs = 0
        self._options = options
        self._speed = speed
        self._orders = orders
        self._kv_format = kv_format
        self._phases = phases
        self._num_weights = 1
        self.sought_since_s: dict[Attempt, float] = {}
        """Requests whose prompt is sought, and since when."""

    def begin(self) -> None:
        """A fresh core and a fresh engine."""
        self.num_epochs += 1
        epoch, doors = f"{self.name}-{self.num_epochs}", self.world.doors
        kv_format = self._kv_format if doors is None else self._drawn_format()
        self.engine = Engine(self, self._speed, self._orders, self._hear_engine, lambda: len(self._events), kv_format)
        self.prefixes: NodePrefixes | None = None
        if self._reads_ahead:
            self.engine.block_bytes, self.engine.step_tokens = BLOCK_SIZE * LARGE_TOKEN_BYTES, 1
            self.engine.kv_bytes_per_s = FAST_COPY_BYTES_PER_S
        if doors is not None:
            self.engine.cache = self._make_cache(kv_format)
            self.prefixes = self._make_prefixes(epoch, doors)
        self.core = self._make_core(epoch)
        self.sought_since_s = {}
        self._events: deque[AgentEvent] = deque()
        self._news = Signal()
        self._reader = Reader(self, streams.node_inbox(self.name), BACKOFF_S)
        self._settled_run = 0
        self._num_told = 0
        self._fetching: dict[Attempt, int] = {}
        self._num_fetches = 0
        self.spawn(self._serve_epoch())

    def _make_core(self, epoch: str) -> AgentCore:
        door = self.prefixes.kv_door if self.prefixes is not None else None
        return AgentCore(self.name, epoch, "scripted", self._options, self._phases, door)

    def _drawn_format(self) -> str:
        if self.num_epochs > 1 and self.chance.random() < NEW_WEIGHTS:
            self._num_weights += 1
        return f"{self._kv_format}, weights {self._num_weights}"

    def _make_prefixes(self, epoch: str, doors: Doors) -> NodePrefixes:
        return NodePrefixes(self, epoch, doors, self.engine.send, self._hear)

    def _make_cache(self, kv_format: str) -> CachedPrefixes:
        return CachedPrefixes(kv_format)

    def _hear(self, event: AgentEvent) -> None:
        self._events.append(event)
        self._news.notify()

    def _hear_engine(self, event: EngineEvent) -> None:
        if isinstance(event, Image):
            ticket = self.world.images.hold(self, self.name, self.core.epoch, event)
            self._hear(ImageHeld(Attempt(event.request_id, event.attempt), ticket))
        elif isinstance(event, ImageGrown):
            first = self.world.images.grow(self.name, self.core.epoch, event.number, event.file.num_bytes)
            if first is not None:
                self._hear(ImageBegun(Attempt(event.request_id, event.attempt), first))
        elif isinstance(event, ImageEnded):
            self.world.images.end_growth(self.core.epoch, event.number)
        elif isinstance(event, PrefixCopied):
            assert self.prefixes is not None, "it has a door"
            self.prefixes.copied(event)
        elif not isinstance(event, PrefixTaken):
            assert not isinstance(event, ImageOpened), "it opens nothing"
            self._hear(event)

    def _number(self) -> int:
        """As `gpu_node.agent.process.node_bus.NodeBus.number`."""
        self._num_told += 1
        return self._num_told

    def drain(self) -> None:
        """SIGTERM: hand over, go, and come back."""
        self._hear(Drain())

    def crash_engine(self) -> None:
        """Its engine process is gone, and with that the epoch."""
        self.note("its engine crashes")
        self._end_epoch("the engine has crashed", has_crashed=True)

    def _end_epoch(self, why: str, *, has_crashed: bool = False) -> None:
        """Say goodbye, and begin anew."""
        self.note("ends epoch", self.core.epoch, "-", why)
        self.world.images.end(self.core.epoch, self.agenda.now if why == DRAINED else None)
        self._close_door()
        self.end_life()
        self.spawn(self._begin_again(has_crashed))

    async def _be_over(self, why: str) -> NoReturn:
        """For tasks of this epoch, which end with that."""
        self._end_epoch(why)
        await sleep(0.0)
        raise AssertionError("a task goes on in the next life")

    async def _begin_again(self, has_crashed: bool) -> None:
        core = self.core
        gone = NodeGone(node=self.name, epoch=core.epoch, has_crashed=has_crashed, blamed=core.blamed)
        try:
            await self._tell_services("goodbye", gone)
        except RedisAwayError:
            self.note("could not say goodbye")
        await sleep(START_S)
        self.begin()

    def die(self) -> None:
        """SIGKILL: what it held is gone."""
        if self.is_alive and self.num_epochs:
            self.world.images.end(self.core.epoch)
            self._close_door()
        super().die()

    def _close_door(self) -> None:
        if self.prefixes is not None:
            self.prefixes.close()

    # --- an epoch ---------------------------------------------------------------------------------------------------

    async def _serve_epoch(self) -> None:
        while True:
            try:
                self._settled_run = await self.ask("open", lambda: self.redis.run_id)
                await self._reader.start()
                break
            except RedisAwayError:
                await sleep(MAX_BACKOFF_S)
        for work in (self._read_inbox(), self._serve(), self._beat(), self.engine.run()):
            self.spawn(work)
        if self.prefixes is not None:
            self.spawn(self._look_at_blocks())

    async def _look_at_blocks(self) -> None:
        while True:
            await sleep(BLOCKS_S)
            self._hear(BlocksDue())

    async def _read_inbox(self) -> None:
        while True:
            message = await self._reader.next()
            self.note("<-", message)
            assert isinstance(message, VirtualQueue | Abort | Evict | ReadAhead | Load | Serve | Fence | TellBlocks)
            self._hear(message)

    async def _serve(self) -> None:
        while True:
            if not self._events:
                await wait(self._news)
                continue
            event = self._events.popleft()
            await self._handle(event)
            if self.core.is_drained:
                await self._be_over(DRAINED)

    async def _handle(self, event: AgentEvent) -> None:
        actions = self.core.handle(event)
        self.core.intake.check()
        since_s = self.sought_since_s
        self.sought_since_s = {one: since_s.get(one, self.agenda.now) for one in self.core.intake.sought}
        for action in actions:
            await self._do(action)

    async def _do(self, action: AgentAction) -> None:
        match action:
            case Pull():
                await self._pull(action)
            case Tell(command):
                self.note("tells its engine", command)
                self.engine.send(command)
            case Resume() | ReadImage() | FetchPrefix() | StopFetch() | DiscardImage() | DropImages():
                self._do_images(action)
            case Publish():
                await self._publish(action)
            case SayInventory():
                await self._say_inventory(action)
            case Beat(heartbeat):
                await self._send_beat(heartbeat)
            case SayBlocks(news):
                await self._say_blocks(news)
            case SayOpened(opened):
                await self._say_opened(opened)
            case NewEpoch():
                await self._be_over("fenced")

    def _do_images(self, action: ImageAction) -> None:
        match action:
            case Resume(payload):
                attempt = Attempt(payload.request_id, payload.attempt)
                self._num_fetches += 1
                self._fetching[attempt] = self._num_fetches
                self.spawn(self._fetch(action, attempt, self._num_fetches))
            case FetchPrefix():
                assert self.prefixes is not None, "it has a door"
                self.prefixes.fetch(action)
            case StopFetch(attempts):
                if self.prefixes is not None:
                    self.prefixes.stop(attempts)
                for attempt in attempts:
                    self._fetching.pop(attempt, None)
            case DropImages(attempts):
                self.world.images.drop(self.core.epoch, attempts)
            case ReadImage(ticket):
                self.world.images.read_ahead(ticket)
            case DiscardImage():
                pass

    async def _fetch(self, resume: Resume, attempt: Attempt, number: int) -> None:
        """Beside all else. Whoever is stopped while it is on its way says nothing of it."""
        armed = self.armed if self.armed is not None and self.armed.command == "image" else None
        file = await self.world.images.fetch(self, resume.ticket, self.chance.random())
        if armed is not None:
            self.armed = None
            self.note(armed.fault, "image")
            if armed.fault.startswith("die"):
                self.die()
                raise Killed
            if armed.fault.startswith("freeze"):
                self.freeze(armed.seconds)
                await sleep(0.0)
            else:
                file = NO_IMAGE  # torn, damaged, or not there
        if self._fetching.get(attempt) == number:
            del self._fetching[attempt]
            self.note("has fetched" if file.path else "has lost", attempt)
            self._hear(ImageFetched(resume.payload, file, 0.0))

    async def _pull(self, pull: Pull) -> None:
        try:
            take = partial(self.redis.pull, pull.group, pull.num_requests, self.name, self.core.epoch, self._number())
            found = await self.ask("pull", take)
        except RedisAwayError:
            await self._be_over("unclear whether it has pulled")
        self.note("pulls", *[f"{entry.request_id}#{entry.attempt}" for _, entry, _ in found], "of", pull.group)
        entries = [GroupEntry(cast("bytes", entry_id), enqueued, payload) for entry_id, enqueued, payload in found]
        await self._handle(Taken(pull.group, pull.num_requests, entries))

    async def _publish(self, publish: Publish) -> None:
        """Until it is out."""
        tokens = [(streams.tokens(gateway), message) for gateway, message in publish.tokens.items()]
        acks = [(ack.group, cast("EntryId", ack.entry_id)) for ack in publish.acks]
        told = self._told(publish)
        self.note("publishes", publish)
        while True:
            try:
                return await self.ask("publish", lambda: self.redis.publish(tokens, acks, told))
            except RedisAwayError:
                await sleep(BACKOFF_S)

    def _told(self, publish: Publish) -> list[Finished | requests.Evicted]:
        told: list[Finished | requests.Evicted] = []
        if publish.finished:
            told.append(Finished(node=self.name, epoch=self.core.epoch, requests=publish.finished))
        if publish.evicted:
            told.append(
                requests.Evicted(node=self.name, epoch=self.core.epoch, requests=publish.evicted, number=self._number())
            )
        return told

    async def _beat(self) -> None:
        while True:
            await self._send_beat(self.core.heartbeat())
            try:
                await self._look_for_another()
            except RedisAwayError:
                self.note("nobody answers")
            await sleep(HEARTBEAT_S)

    async def _look_for_another(self) -> None:
        """Another Redis is told what is here, in order with what is pulled and published."""
        run_id = await self.ask("beat", lambda: self.redis.run_id)
        if run_id != self._settled_run:
            await self.ask("beat", self._reader.put_back)
            self._hear(TakeStock())
            self._settled_run = run_id

    async def _send_beat(self, heartbeat: Heartbeat) -> None:
        try:
            await self._tell_services("beat", heartbeat)
        except RedisAwayError:
            self.note("heartbeat not sent")

    async def _tell_services(self, command: str, message: Message) -> None:
        told = (streams.SCHEDULER, streams.KV) if self.prefixes is not None else (streams.SCHEDULER,)
        await self.ask(command, lambda: self.redis.add(*((stream, message) for stream in told)))

    async def _say_blocks(self, news: BlockNews) -> None:
        try:
            await self.ask("blocks", lambda: self.redis.add((streams.KV, news)))
        except RedisAwayError:
            self.note("cached blocks not told")

    async def _say_opened(self, opened: KvOpened) -> None:
        try:
            await self.ask("opened", lambda: self.redis.add((streams.QUEUE, opened)))
        except RedisAwayError:
            self.note("KV not told to be open")

    async def _say_inventory(self, action: SayInventory) -> None:
        self.note("says inventory", action)
        parts = inventories.of_node(self.name, self.core.epoch, action.running, action.parked, self._number())
        while True:
            try:
                await self.ask("inventory", lambda: self.redis.add(*((streams.QUEUE, part) for part in parts)))
            except RedisAwayError:
                await sleep(BACKOFF_S)
            else:
                return
