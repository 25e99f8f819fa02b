"""One run: a cluster, its load, faults one after another, and the history of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from redis.exceptions import RedisError

from services.kv_manager.core import KvManagerCore
from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.bus import streams
from shared.config.config import load_config
from shared.service.background.tasks import cancel_all
from shared.service.core import Core
from tests.chaos.asks import longest_asks
from tests.chaos.checker.fold import refold
from tests.chaos.checker.secrecy import search
from tests.chaos.cluster import Cluster
from tests.chaos.faults.catalogue import schedule
from tests.chaos.faults.fault import SERVICES, Kind, Scene, SkippedError
from tests.chaos.history import Ask, Fault, History, Leftover, LifeOf
from tests.chaos.load import Load
from tests.chaos.log_reader import read_log
from tests.chaos.members import GATEWAYS, REAL, TINY
from tests.chaos.sampler import Sampler, parse_metrics
from tests.chaos.survey import SECRETS, leftovers, resources, secrets
from tests.e2e.collector import Collector, collecting

RECOVERY_WAIT_S = 60.0  # what has not recovered by then never does
CANARY_S = 5.0
SLOW_S = 10.0  # a recovery that takes longer is told with its reasons
SETTLE_S = 15.0  # the promise of I4
_POLL_S = 0.2
PAUSE_S = (0.5, 2.0)  # between a recovery and the next fault


@dataclass(frozen=True)
class Options:
    """What a run shall be."""

    seconds: float
    seed: int
    folder: Path
    longest_fault_s: float = 30.0
    kinds: list[str] = field(default_factory=list)
    """Names of faults; all, where it is empty."""
    is_once: bool = False
    """Each of them once, however long that takes."""
    say: Callable[[str], None] = lambda _: None


class Run:
    """A run and its history."""

    def __init__(self, options: Options, collector: Collector) -> None:
        self.history = History()
        self._options = options
        self._random = Random(options.seed)
        self._began = time.monotonic()
        self._collector = collector
        self._cluster = Cluster(options.folder, collector.url)
        self._load = Load(self._cluster.of("gateway"), self.history, options.seed, self.now)

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    async def perform(self) -> History:
        """Start, disturb, stop, look."""
        sampler = asyncio.create_task(Sampler(self._cluster, self.history, self.now).run())
        try:
            await self._cluster.start()
            self._say("ready")
            await self._load.learn_undisturbed()
            await self._settle()
            self.history.resources.append(await resources(self._cluster, "start", self.now()))
            self._load.start()
            await self._disturb()
            self._say("load stops")
            await self._load.stop()
            self.history.stopped_s = self.now()
            await self._note_end()
        finally:
            await cancel_all([sampler])
            await self._load.close()
            self._note_lives()
            await self._cluster.close()
        self._fold_again()
        return self.history

    async def _disturb(self) -> None:
        """Faults until the time is over; the last one is recovered from all the same."""
        end_s = self.now() + self._options.seconds
        for number, kinds in enumerate(schedule(self._random, self._options.kinds)):
            if number >= len(self._options.kinds) if self._options.is_once else self.now() >= end_s:
                return
            await asyncio.sleep(self._random.uniform(*PAUSE_S))
            records = await asyncio.gather(*(self._inject(kind) for kind in kinds))
            await self._recover(records)

    async def _inject(self, kind: Kind) -> Fault:
        """Do it, and return when it is over."""
        record = Fault(kind=kind.name, targets=[], began_s=self.now())
        self.history.faults.append(record)
        # chance of its own: two faults at a time must not take turns with one
        scene = Scene(self._cluster, Random(self._random.random()), record, self._options.longest_fault_s)
        try:
            await kind.inject(scene)
        except SkippedError as error:
            record.skipped = str(error)
        except RedisError as error:
            record.skipped = f"another fault was in the way: {error}"
        record.ended_s = self.now()
        return record

    async def _recover(self, records: list[Fault]) -> None:
        """Until the cluster serves, and then until it is whole; gives up after `RECOVERY_WAIT_S`."""
        whole_s: float | None = None
        obstacles: list[str] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(RECOVERY_WAIT_S):
                while obstacle := await self._obstacle():
                    obstacles.append(obstacle)
                    await asyncio.sleep(_POLL_S)
                whole_s = self.now()
                while await self._cluster.missing():  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(_POLL_S)
        last_s = max(record.ended_s for record in records)
        for record in records:
            record.ended_s, record.whole_s = last_s, whole_s
            record.obstacles = list(dict.fromkeys(obstacles))
            took = "never" if whole_s is None else f"after {whole_s - last_s:.1f} s"
            skipped = f"skipped: {record.skipped}; " if record.skipped else ""
            self._say(f"{record.kind} {','.join(record.targets)} ({record.detail}): {skipped}serves {took}")
        if whole_s is None or whole_s - last_s > SLOW_S:
            self._say(f"  meanwhile: {'; '.join(dict.fromkeys(obstacles))}")

    async def _obstacle(self) -> str:
        """Why it does not serve: a service that nobody leads, a gateway that does not answer; empty if it does."""
        for service in SERVICES:
            if not await self._is_led(service):
                return f"nobody leads {service}"
        asks = [Ask(ask.key, ask.model, ask.prompt, 1, 0.0, 0) for ask in self._canaries()]
        answers = await asyncio.gather(
            *(self._load.ask(gateway, ask, CANARY_S) for gateway in self._cluster.of("gateway") for ask in asks)
        )
        failed = [answer for answer in answers if answer.end != "whole"]
        return ", ".join(f"{one.ask.model} by {one.gateway}: {one.end} {one.why[:60]}" for one in failed)

    @staticmethod
    def _canaries() -> list[Ask]:
        firsts = {ask.model: ask for ask in reversed(longest_asks())}
        return [firsts[REAL], firsts[TINY]]

    async def _is_led(self, service: str) -> bool:
        for member in self._cluster.of(service):
            _, text = await self._cluster.get(member, "/metrics")
            if any(name.startswith("treadle_lease_held") and value for name, value in parse_metrics(text).items()):
                return True
        return False

    async def _settle(self) -> list[Leftover]:
        """Until nothing is left of any request, no longer than promised; what is left then."""
        deadline_s = self.now() + SETTLE_S
        while left := await leftovers(self._cluster, self.now()):
            if self.now() > deadline_s:
                return left
            await asyncio.sleep(_POLL_S)
        return []

    async def _note_end(self) -> None:
        """What an idle cluster still holds, and what Redis kept."""
        self.history.leftovers = await self._settle()
        self._say(f"idle, but for {len(self.history.leftovers)} things")
        self.history.resources.append(await resources(self._cluster, "end", self.now()))
        self.history.secrets = await secrets(self._cluster)
        for span in self._collector.spans:
            self.history.secrets += search(f"a span of {span.service}", repr(span), SECRETS)
        self._say(f"{len(self._collector.spans)} spans looked at")
        server = self._cluster.server
        log = server.aof.read_bytes()
        (self._options.folder / "redis.aof").write_bytes(log)  # its disk is gone with the cluster
        self.history.entries = list(read_log(log, server.starts))

    def _fold_again(self) -> None:
        folder = self._options.folder
        config = load_config(folder / f"{GATEWAYS[0]}.yaml")
        cores: dict[str, tuple[str, Core]] = {
            "queue-manager": (streams.QUEUE, QueueManagerCore(config)),
            "scheduler": (streams.SCHEDULER, SchedulerCore(config)),
            "kv-manager": (streams.KV, KvManagerCore(has_index=config.routes_warm)),
        }
        self.history.differences = list(refold((folder / "redis.aof").read_bytes(), cores))
        self._say("inboxes folded again")

    def _note_lives(self) -> None:
        for member in self._cluster.members.values():
            member.reap()
            for life in member.lives:
                ended_s = None if life.ended_s is None else life.ended_s - self._began
                was_ours = life.pid in self._cluster.ended_by_us
                self.history.lives.append(
                    LifeOf(
                        member=life.member,
                        pid=life.pid,
                        began_s=life.began_s - self._began,
                        ended_s=ended_s,
                        status=life.status,
                        was_ours=was_ours,
                    )
                )

    def _say(self, text: str) -> None:
        self._options.say(f"{self.now():7.1f} s  {text}")


async def perform(options: Options) -> History:
    """One run from beginning to end."""
    with collecting() as collector:
        return await Run(options, collector).perform()
