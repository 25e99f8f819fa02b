"""What a fault is: a name, and what it does to the cluster while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from redis.exceptions import RedisError

from tests.chaos.cluster import Cluster
from tests.chaos.history import Fault
from tests.chaos.member import Member

SERVICES = ("queue-manager", "scheduler", "kv-manager")
KINDS_OF_PROCESS = (*SERVICES, "gateway", "node")


@dataclass
class Scene:
    """Where a fault happens: the cluster, the seed's chance, and the record that it fills in."""

    cluster: Cluster
    random: Random
    record: Fault
    longest_s: float
    """No fault lasts longer."""
    load_s: float = 3.0
    """How long something that needs traffic waits for it."""

    def duration(self, least_s: float = 1.0, most_s: float = 30.0) -> float:
        """How long this one lasts."""
        return self.random.uniform(min(least_s, self.longest_s), min(most_s, self.longest_s))

    def choose(self, kind: str) -> Member:
        """A member of a kind, noted as a target."""
        member = self.random.choice(self.cluster.of(kind))
        self.record.targets.append(member.name)
        return member

    async def leader(self, service: str) -> Member:
        """Who leads a service now, noted as a target; its first instance where nobody does."""
        try:
            held: Any = await self.cluster.server.client.get(f"treadle:lease:{service}")
        except (RedisError, OSError):  # another fault has to do with it
            held = None
        name = held.decode().rpartition("#")[0] if held else service
        self.record.targets.append(name)
        return self.cluster.members[name]

    def note(self, text: str) -> None:
        """For whoever reads the history."""
        self.record.detail = f"{self.record.detail}; {text}" if self.record.detail else text


class SkippedError(Exception):
    """This fault cannot be done on this machine; the text says why."""


@dataclass(frozen=True)
class Kind:
    """A fault by its name."""

    name: str
    inject: Callable[[Scene], Awaitable[None]]
    is_of_redis: bool = False
    """Done to Redis itself, so that no other such fault may come meanwhile."""


async def last(scene: Scene, seconds: float) -> None:
    """The time while something is broken."""
    scene.note(f"{seconds:.2f} s")
    await asyncio.sleep(seconds)


async def until_fired(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether it happened in time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout_s)
    return event.is_set()
