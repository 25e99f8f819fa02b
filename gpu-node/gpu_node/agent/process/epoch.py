"""One epoch of a node: inbox, engine and clock feed one queue of events; the core answers; this does it, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from opentelemetry import trace
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_node.agent.decisions.actions import (
    AdaptersDue,
    AgentAction,
    AgentEvent,
    Beat,
    BlocksDue,
    Configured,
    DiscardImage,
    Drain,
    DropImages,
    FetchPrefix,
    LeasesDue,
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
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.agent.images.image_traffic import ImageTraffic
from gpu_node.agent.images.prefix_giver import PrefixGiver
from gpu_node.agent.process.engine_process import EngineDiedError, EngineProcess
from gpu_node.agent.process.engine_watch import EngineWatch
from gpu_node.agent.process.failures import log_failures
from gpu_node.agent.process.model_watch import ModelWatch
from gpu_node.agent.process.node_bus import NodeBus, PullRefusedError
from gpu_node.agent.process.node_inbox import BACKOFF_S, MAX_BACKOFF_S, NodeInbox
from gpu_node.agent.telemetry.metrics import EpochMetrics, observe_published
from gpu_node.agent.telemetry.prefix_metrics import count_taken
from gpu_node.agent.telemetry.run_times import RunTimes
from gpu_node.agent.telemetry.spans import RunSpans
from gpu_node.engine.process.protocol.growth_protocol import ImageEnded, ImageGrown
from gpu_node.engine.process.protocol.prefix_protocol import PrefixCopied, PrefixTaken
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    Command,
    Image,
    ImageOpened,
    ReleaseImages,
    RunAttempt,
)
from shared.config.engines.engine import EngineOptions
from shared.service.background.tasks import cancel_all

HEARTBEAT_S = 1.0
BLOCKS_S = 0.25  # between two looks at what is cached; a client reads an answer before it comes back
DRAIN_S = 5.0  # to hand over what runs when the process is asked to stop; what is left then is computed again elsewhere
MAX_EVENTS = 256  # events that wait for the core; beyond it the readers wait, and the engine with them

log = structlog.get_logger()


class EpochOverError(Exception):
    """What this node ran counts as lost; another epoch has to begin."""


class Epoch:
    """Runs until something ends it; `core` tells how it stands."""

    def __init__(
        self,
        redis: Redis,
        core: AgentCore,
        engine: EngineProcess,
        given: GivenImages,
        options: EngineOptions,
        heartbeat_s: float = HEARTBEAT_S,
        *,
        giver: PrefixGiver | None = None,
        models: ModelWatch | None = None,
        tells_blocks: bool = False,
    ) -> None:
        """``given`` outlives the epoch, and so do ``models``, which the engine has read just now.

        ``giver``: other nodes ask for what is cached here. ``tells_blocks``: the KV manager hears of it.
        """
        self._models = models
        self._giver = giver
        self.core = core
        self._tells_blocks = tells_blocks
        self._inbox = NodeInbox(redis, core.node)
        self._engine = engine
        self._heartbeat_s = heartbeat_s
        self._watch = EngineWatch(core, engine, options.step_timeout_s)
        self._bus = NodeBus(redis, core.node, core.epoch)
        self._spans = RunSpans(core.node, trace.get_tracer("treadle.node"))
        self._metrics = EpochMetrics(core)
        self._times = RunTimes()
        self._events: asyncio.Queue[AgentEvent] = asyncio.Queue(MAX_EVENTS)
        fetcher = ImageFetcher(options.evicted_kv_bytes, lambda: core.report.stats.evicted_kv_bytes)
        self._images = ImageTraffic(given, fetcher, self._spans, self._events.put)
        self._drained = asyncio.Event()
        self._has_crashed = False

    async def run(self, stopping: asyncio.Task[bool]) -> None:
        """Serve until ``stopping`` is done, then hand over what runs.

        Raises `EpochOverError` or `EngineDiedError` when the epoch ended itself.
        """
        if self._models is not None:
            await self._events.put(Configured(self._models.models, self._models.is_settled))
        await self._inbox.open()
        loops = [self._read_engine(), self._watch.run(), self._read_inbox(), self._beat(), self._serve()]
        loops.append(self._release_images())
        if self._models is not None:
            loops.append(self._models.run(lambda models: self._events.put(Configured(models))))
        if self._tells_blocks:
            loops.append(self._look_at_blocks())
        tasks = [asyncio.create_task(loop) for loop in loops]
        try:
            done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if done == {stopping}:
                tasks.append(asyncio.create_task(self._drain()))
                done, _ = await asyncio.wait(tasks, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
                log.info("stopping", num_left=len(self.core.running), is_drained=self.core.is_drained)
            for task in done - {stopping}:
                task.result()
        except EngineDiedError:
            self._has_crashed = True
            raise
        finally:
            await cancel_all(tasks)
            await self._images.close()
            self._spans.close()
            await self._say_goodbye()

    async def _drain(self) -> None:
        await self._events.put(Drain())
        await self._drained.wait()

    async def _say_goodbye(self) -> None:
        try:
            await self._bus.say_goodbye(has_crashed=self._has_crashed, blamed=self.core.blamed)
        except (RedisError, OSError) as error:
            log.warning("no goodbye: the heartbeats will run out instead", error=str(error))

    # --- what feeds the core --------------------------------------------------------------------------------------

    async def _read_engine(self) -> None:
        while True:
            for event in await self._engine.events():
                self._watch.heard()
                match event:
                    case Image():
                        await self._events.put(self._images.hold(event))
                    case ImageGrown():
                        begun = self._images.grow(event)
                        if begun is not None:
                            await self._events.put(begun)
                    case ImageEnded(number):
                        self._images.end(number)
                    case ImageOpened(file):
                        self._images.close_file(file)
                    case PrefixCopied():
                        assert self._giver is not None, "an answer to it"
                        self._giver.copied(event)
                    case PrefixTaken(num_tokens, is_refused):
                        count_taken(num_tokens, is_refused=is_refused)
                    case _:
                        await self._events.put(event)

    async def _release_images(self) -> None:
        while True:
            await self._engine.send(ReleaseImages(await self._images.released()))

    async def _read_inbox(self) -> None:
        while True:
            for message in await self._inbox.read():
                await self._events.put(message)

    async def _beat(self) -> None:
        while True:
            await self._send_beat(Beat(self.core.heartbeat()))
            await self._look_at_redis()
            await self._events.put(LeasesDue(_now()))
            await self._events.put(AdaptersDue(_now()))
            await asyncio.sleep(self._heartbeat_s)

    async def _look_at_blocks(self) -> None:
        while True:
            await asyncio.sleep(BLOCKS_S)
            await self._events.put(BlocksDue())

    async def _look_at_redis(self) -> None:
        """Should it be another one, it may lack what it was told last: the core says again what is here."""
        if await self._inbox.is_elsewhere():
            log.warning("saying the inventory", num_running=len(self.core.running))
            await self._events.put(TakeStock())

    # --- the core and what it wants done --------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            event = await self._events.get()
            actions = self.core.handle(event)
            self._metrics.observe(event)
            for action in actions:
                await self._do(action)
            if self.core.is_drained:
                self._drained.set()

    async def _do(self, action: AgentAction) -> None:
        match action:
            case Pull():
                await self._pull(action)
            case Tell(command):
                await self._tell(command)
            case Resume() | ReadImage() | FetchPrefix() | StopFetch() | DiscardImage() | DropImages():
                self._images.do(action)
            case Publish():
                self._spans.publish(action)
                await self._publish(action)
                self._times.publish(action, _now())
                observe_published(action)
                log_failures(action, self.core.model)
            case SayInventory():
                number = self._bus.number()
                await self._until_done(lambda: self._bus.say_inventory(action, number), "inventory not said")
            case Beat():
                await self._send_beat(action)
            case SayBlocks(news):  # what is not told, the KV manager misses by its number, and asks
                await self._say_once(self._bus.say_blocks(news), "cached blocks not told")
            case SayLease(answer):  # the KV manager ends what is not answered
                await self._say_once(self._bus.say_lease(answer), "answer about a lease not said")
            case SayOpened(opened):  # what is not told is read when all of it is there
                await self._say_once(self._bus.say_opened(opened), "KV not told to be open")
            case NewEpoch():
                raise EpochOverError("fenced: the scheduler had declared this node dead")

    async def _tell(self, command: Command) -> None:
        if isinstance(command, RunAttempt):
            self._spans.begin(command)
            self._times.begin(command.payload, _now())
        elif isinstance(command, AbortRequests):
            self._spans.drop(command.request_ids)
            self._times.drop(command.request_ids)
        await self._engine.send(command)

    async def _pull(self, pull: Pull) -> None:
        with self._watch.held_up():
            taken = await self._taken(pull)
        self._spans.pulled(taken.group, taken.entries)
        for action in self.core.handle(taken):
            await self._do(action)

    async def _taken(self, pull: Pull) -> Taken:
        """Until Redis takes it: one that is full, or cannot write its disk, is waited for."""
        backoff_s = BACKOFF_S
        while True:
            try:
                return await self._bus.pull(pull)
            except PullRefusedError as error:
                log.warning("nothing pulled, retrying", error=str(error), retry_s=backoff_s)
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)
            except (RedisError, OSError) as error:
                # the entries may be ours without our knowing which: only a new epoch makes the ledger right again
                raise EpochOverError(f"unclear whether {pull.group} was pulled: {error}") from error

    async def _publish(self, publish: Publish) -> None:
        number = self._bus.number()
        await self._until_done(lambda: self._bus.publish(publish, number), "step not published")

    async def _until_done(self, write: Callable[[], Awaitable[None]], failed: str) -> None:
        """Until it is out: repeating is safe, and while Redis is away the engine waits behind the bounded queue."""
        backoff_s = BACKOFF_S
        with self._watch.held_up():
            while True:
                try:
                    return await write()
                except (RedisError, OSError) as error:
                    log.warning(f"{failed}, retrying", error=str(error), retry_s=backoff_s)
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    async def _say_once(self, write: Awaitable[None], failed: str) -> None:
        try:
            await write
        except (RedisError, OSError) as error:
            log.warning(failed, error=str(error))

    async def _send_beat(self, action: Beat) -> None:
        try:
            await self._bus.beat(action.heartbeat)
        except (RedisError, OSError) as error:
            log.warning("heartbeat not sent", error=str(error))  # the next one says the same


def _now() -> float:
    return asyncio.get_running_loop().time()
