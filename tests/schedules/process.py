"""A process of the cluster: its tasks, its connections to Redis, and the faults that wait for its next command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from tests.schedules.agenda import Agenda, Host, Killed, sleep
from tests.schedules.doors import Doors
from tests.schedules.images import Images
from tests.schedules.redis_model import RedisAwayError, RedisModel
from tests.schedules.transcript import Transcript

LATE_S = 4.0  # for so long a command may stand in a buffer of the server's at most

T = TypeVar("T")

Fault = Literal[
    "die before", "die after", "request lost", "answer lost", "executed late", "freeze before", "freeze after",
    "tail lost",
]  # fmt: skip


Role = Literal["any", "service", "gateway", "node"]


@dataclass(frozen=True, slots=True)
class Armed:
    """A fault that meets the next command of a kind."""

    fault: Fault
    role: Role
    """Which processes it may meet."""
    command: str
    """Its name; ``""`` for any."""
    seconds: float
    """For how long the process is frozen, after how long the command is executed, or how much Redis has lost."""


@dataclass(slots=True)
class World:
    """What all processes share."""

    agenda: Agenda
    redis: RedisModel
    chance: Random
    transcript: Transcript
    images: Images
    latency_s: float
    """Of the slowest way to Redis, where nothing is wrong."""
    restart_s: float
    """At most, until a process that has died is there again."""
    doors: Doors | None = None
    """Of nodes that read each other's caches; None where they do not."""


class Process(Host):
    """One that may be killed, frozen, and cut off."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.agenda)
        self.world = world
        self.redis = world.redis
        self.chance = world.chance
        self.name = name
        self.is_alive = False
        self.armed: Armed | None = None
        self._connected: dict[str, int] = {}

    def note(self, *words: object) -> None:
        """Tell the transcript what this process has done."""
        self.world.transcript.note(self.agenda.now, self.name, words)

    def start(self) -> None:
        """Begin a life."""
        self.is_alive = True
        self.frozen_until_s = 0.0
        self._connected = {}
        self.note("starts")
        self.begin()

    def begin(self) -> None:
        """Spawn the tasks of a life."""
        raise NotImplementedError

    def die(self) -> None:
        """SIGKILL."""
        if self.is_alive:
            self.note("is killed")
            self.is_alive = False
            self.end_life()
            self.agenda.at(self.agenda.now + self.world.restart_s * self.chance.random(), self.revive)

    def revive(self) -> None:
        """Its supervisor starts it again."""
        if not self.is_alive:
            self.start()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        self.note("is frozen for", round(seconds, 2), "s")
        self.frozen_until_s = self.agenda.now + seconds

    @property
    def is_frozen(self) -> bool:
        """Whether it does not run."""
        return self.frozen_until_s > self.agenda.now

    async def meet(self, name: str) -> bool:
        """A fault that waits for what is done without Redis; whether what was done is lost with it."""
        armed = self.armed
        if armed is None or armed.command != name:
            return False
        self.armed = None
        self.note(armed.fault, name)
        if armed.fault.startswith("die"):
            self.die()
            raise Killed
        if armed.fault.startswith("freeze"):
            self.freeze(armed.seconds)
            await sleep(0.0)
            return False
        return True

    async def ask(self, name: str, command: Callable[[], T]) -> T:
        """Have Redis do something. `RedisAwayError` where no answer came, whether it was done or not."""
        await sleep(self.world.latency_s * self.chance.random())
        armed = self.armed
        if armed is not None and armed.command in ("", name):
            self.armed = None
            self.note(armed.fault, name)
        else:
            armed = None
        if armed is not None and armed.fault == "freeze before":
            self.frozen_until_s = self.agenda.now + armed.seconds
            await sleep(0.0)
        self._connect(name)
        if armed is None:
            return command()
        if armed.fault == "tail lost":
            self._lose_tail(name, 1 + int(armed.seconds))
            return command()
        return await self._ask_badly(armed, command)

    def _connect(self, name: str) -> None:
        """A connection that was closed is noticed by who waits for an answer; who has just sent nothing may not."""
        if not self.redis.is_up:
            raise RedisAwayError
        known = self._connected.get(name, self.redis.run_id)
        self._connected[name] = self.redis.run_id
        if known != self.redis.run_id and (name == "read" or self.chance.random() < 0.5):
            raise RedisAwayError

    def _lose_tail(self, name: str, num_lost: int) -> None:
        """Another Redis answers, which has not seen the last of them, over a connection that was made unnoticed."""
        self.redis.stop()
        self.redis.start(max(0, self.redis.num_logged - num_lost))
        self._connected[name] = self.redis.run_id
        self.note("redis is another, run", self.redis.run_id, "without the last", num_lost)

    async def _ask_badly(self, armed: Armed, command: Callable[[], T]) -> T:
        match armed.fault:
            case "die before":
                self.die()
                raise Killed
            case "request lost":
                raise RedisAwayError
            case "executed late":
                self.agenda.at(self.agenda.now + min(armed.seconds, LATE_S), lambda: self._late(command))
                raise RedisAwayError
        answer = command()
        match armed.fault:
            case "die after":
                self.die()
                raise Killed
            case "answer lost":
                raise RedisAwayError
            case "freeze after":
                self.frozen_until_s = self.agenda.now + armed.seconds
                await sleep(0.0)
        return answer

    def _late(self, command: Callable[[], object]) -> None:
        """It stood in a buffer of the server while the client gave up."""
        if self.redis.is_up:
            try:
                command()
            except Exception as error:  # nobody is left to be told
                self.note("what came late failed:", repr(error))
