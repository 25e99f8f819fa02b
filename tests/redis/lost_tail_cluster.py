"""A cluster in one process over a Redis of its own: the live loops of every part, scripted engines, and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.calls.job import Job
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.openai.answers.delta import Delta
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.process.epoch import Epoch, EpochOverError
from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.bus import streams
from shared.bus.bus import connect
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.codec import FIELD, encode
from shared.messages.nodes.placement import PlacementProblem
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Attempt, Evict
from shared.messages.requests.slo import Slo
from shared.service.background.tasks import cancel_all
from shared.service.driver import Driver
from tests.redis.image_port import image_port
from tests.redis.log_file import LogFile
from tests.redis.own_server import OwnServer
from tests.redis.scripted_engine import ScriptedEngine, text
from tests.redis.waiting import until

if TYPE_CHECKING:
    from gpu_node.agent.process.engine_process import EngineProcess
    from shared.service.background.solver import Solver

CONFIG = ClusterConfig(models=[ModelSpec(name="a", source="a.gguf")])
OPTIONS = EngineOptions(max_num_seqs=6, step_tokens=64, step_timeout_s=60.0)  # until an engine is taken for hung
BEAT_S = 0.2
NODES = ("n0", "n1")
NUM_CLIENTS = 6
AGREEMENT_S = 15.0
PATIENCE_S = 300.0  # of a client: with Redis thrown back every other second, some wait for many of its lives
TOKEN_BYTES = [bytes([number]) for number in range(256)]


class NoSolver:
    """A driver may lose a question for a plan: it loses them all, and groups stand where the rule has put them."""

    def submit(self, problem: PlacementProblem) -> None:
        del problem


class Node:
    """Epoch after epoch, as `Agent` runs them."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.num_epochs = 0
        self.core: AgentCore | None = None
        self._redis = connect(url)
        self._given: GivenImages | None = None

    async def run(self) -> None:
        async with image_port(lambda: self._given) as base_url:
            await self._run(base_url)

    async def _run(self, base_url: str) -> None:
        never = asyncio.create_task(asyncio.Event().wait())
        try:
            while True:
                self.num_epochs += 1
                engine = ScriptedEngine()
                self.core = AgentCore(self.name, f"{self.name}-{self.num_epochs}", "cpu", OPTIONS)
                self._given = given = GivenImages(self.name, self.core.epoch, base_url)
                process = cast("EngineProcess", engine)
                epoch = Epoch(self._redis, self.core, process, given, OPTIONS, heartbeat_s=BEAT_S)
                computing = asyncio.create_task(engine.run())
                try:
                    await epoch.run(never)
                except EpochOverError:
                    self.core = None
                finally:
                    given.clear()
                    await cancel_all([computing])
        finally:
            never.cancel()
            await self._redis.aclose()


class Cluster:
    """Traffic goes on while its Redis is killed and comes back without the end of its log."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = Random(seed)
        self.server = OwnServer(folder)
        self.log_file = LogFile(folder)
        self.num_answers = 0
        self.num_cancelled = 0
        self._asks = True
        self._num_asked = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of it, and its clients; leaving waits for their answers, and ends it."""
        await self.server.start()
        self._redis = connect(self.server.url)
        self._services: list[Driver[Any]] = []
        tasks = [
            self._serve("queue-manager", streams.QUEUE, lambda: QueueManagerCore(CONFIG)),
            self._serve("scheduler", streams.SCHEDULER, lambda: SchedulerCore(CONFIG)),
        ]
        self.nodes = [Node(name, self.server.url) for name in NODES]
        tasks += [asyncio.create_task(node.run()) for node in self.nodes]
        gateway_redis = connect(self.server.url)
        queue = RedisQueue(gateway_redis, "gw", beat_s=BEAT_S)
        self.dispatcher = Dispatcher(queue, "gw")
        try:
            async with queue.serving(self.dispatcher):
                clients = [asyncio.create_task(self._client()) for _ in range(NUM_CLIENTS)]
                try:
                    yield
                    self._asks = False
                    try:
                        await asyncio.wait_for(asyncio.gather(*clients), AGREEMENT_S)
                    except TimeoutError:
                        raise AssertionError(f"no end: {self.dispatcher.attempts()}; {self.difference()}") from None
                    await self.dispatcher.drain()
                    await until(self._is_empty, AGREEMENT_S)
                finally:
                    await cancel_all(clients)
        finally:
            await cancel_all(tasks)
            await gateway_redis.aclose()
            await self._redis.aclose()
            self.server.kill()

    def _serve(self, service: str, inbox: str, make_core: Callable[[], Any]) -> asyncio.Task[None]:
        redis = connect(self.server.url)
        driver: Driver[Any] = Driver(
            make_core,
            redis,
            service=service,
            inbox=inbox,
            instance="one",
            reconnect=lambda: connect(self.server.url),
            solver=cast("Solver", NoSolver()),
        )
        self._services.append(driver)

        async def run() -> None:
            try:
                await driver.run(asyncio.Event())
            finally:
                await redis.aclose()

        return asyncio.create_task(run())

    async def lose_tail(self) -> int:
        """Kill, cut, start; answers how many commands Redis has forgotten."""
        self.server.kill()
        num_lost = self.log_file.cut(self.chance)
        await self.server.start()
        return num_lost

    async def evict_somebody(self) -> None:
        """A node is asked to hand somebody over."""
        node = self.chance.choice(self.nodes)
        if node.core is not None and node.core.running:
            name, running = self.chance.choice(list(node.core.running.items()))
            evict = Evict(node=node.name, epoch=node.core.epoch, requests=[Attempt(name, running.attempt)])
            await self._redis.xadd(streams.node_inbox(node.name), {FIELD: encode(evict)})

    async def answers(self, number: int) -> None:
        """Wait until so many more clients have what they wanted."""
        wanted = self.num_answers + self.num_cancelled + number

        async def has_answered() -> bool:
            return self.num_answers + self.num_cancelled >= wanted

        await until(has_answered, AGREEMENT_S)

    async def agree(self) -> None:
        """Wait until gateway, queue manager and nodes know the same of each request."""
        await until(self._do_agree, AGREEMENT_S)

    async def _do_agree(self) -> bool:
        return self.difference() == ""

    def difference(self) -> str:
        """What gateway, queue manager and nodes do not agree on; empty where they do."""
        core = self._services[0].core
        if core is None:
            return "no queue manager"
        requests, groups = core.state.requests, core.state.groups
        known = {name: request.attempt for name, request in requests.items()}
        asked = {attempt.request_id: attempt.attempt for attempt in self.dispatcher.attempts()}
        if known != asked:
            return f"the queue manager knows {known}, the gateway has {asked}"
        if homeless := [name for name, request in requests.items() if not request.group]:
            return f"{homeless} are waited for"
        for node in self.nodes:
            if node.core is None:
                return f"{node.name} begins"
            here = node.core.inventory()
            believed = {Attempt(name, one.attempt) for name, one in requests.items() if one.node == node.name}
            kept = {
                Attempt(name, requests[name].attempt)
                for group in groups.values()
                if group.kv_at == node.name
                for name in group.waiting
            }
            if (set(here.running), set(here.parked)) != (believed, kept):
                return f"{node.name} has {here}, believed are {believed} and {kept}"
        return ""

    async def _is_empty(self) -> bool:
        """Nothing is left of any request."""
        keys: Any = await self._redis.keys("treadle:req:*")
        keys += await self._redis.keys("treadle:group:*")
        return self.difference() == "" and not keys

    # --- clients --------------------------------------------------------------------------------------------------

    async def _client(self) -> None:
        while self._asks:
            self._num_asked += 1
            num_tokens = self.chance.randint(1, 30)
            job = _job(f"r{self._num_asked}", num_tokens)
            num_wanted = self.chance.randint(0, num_tokens) if self.chance.random() < 0.2 else num_tokens
            try:
                answer = await self._ask(job, num_wanted)
            except QueueUnavailableError:
                await asyncio.sleep(BEAT_S)
                continue
            expected = text(job.request_id, num_tokens)
            assert expected.startswith(answer), f"{job.request_id}: {answer} instead of {expected}"
            if num_wanted == num_tokens:
                assert answer == expected
                self.num_answers += 1
            else:
                self.num_cancelled += 1

    async def _ask(self, job: Job, num_wanted: int) -> str:
        """Its answer; a client that wants less of it leaves when it has that."""
        answer = ""
        async with self.dispatcher.run(job) as call:
            while not call.is_complete and (len(answer) < num_wanted or num_wanted == job.sampling.max_tokens):
                news = await call.next_news(PATIENCE_S)
                assert isinstance(news, list), f"{job.request_id} got {news} after {answer!r}"
                answer += "".join(delta.text for delta in news if isinstance(delta, Delta))
        return answer


def _job(request_id: str, max_tokens: int) -> Job:
    return Job(
        request_id=request_id,
        model="a",
        prompt_token_ids=[1, 2, 3],
        sampling=Sampling(max_tokens=max_tokens, ignore_eos=True),
        stops=[],
        token_bytes=TOKEN_BYTES,
        slo=Slo("interactive", deadline_s=20.0),
        tenant="default",
    )
