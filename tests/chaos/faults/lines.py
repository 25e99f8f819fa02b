"""The way to Redis: slow, cut or silent for one process, a reply lost, a death exactly at a named point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from tests.chaos.faults.fault import SERVICES, Kind, Scene, last, until_fired
from tests.chaos.proxy import Rule

SLOWEST_S = 3.0
POINT_WAIT_S = 6.0  # for a process to come by a point; snapshots are rare, see `_at_point`
MOST_SKIPPED = 5

POINTS = {
    "commit": SERVICES,
    "snapshot": SERVICES,
    "acquire": SERVICES,
    "pull": ("node",),
    "publish": ("node",),
    "beat": ("node", "gateway"),
    "submit": ("gateway",),
    "cancel": ("gateway",),
    "finish": ("gateway",),
}
"""Where processes are caught, and which of them come by there."""
RARE_POINTS = ("snapshot", "acquire")  # something has to be done before anybody comes by
MAIN_POINTS = ("commit", "snapshot", "pull", "publish")
OTHER_POINTS = tuple(point for point in POINTS if point not in MAIN_POINTS)


async def _slow(scene: Scene) -> None:
    """Every command of everybody takes up to three seconds."""
    lines, slowest = list(scene.cluster.proxy.lines.values()), scene.random.uniform(0.05, SLOWEST_S)
    scene.note(f"up to {slowest:.2f} s a command")
    for line in lines:
        line.delay_s = lambda: scene.random.uniform(0, slowest)
    try:
        await last(scene, scene.duration(2.0, 15.0))
    finally:
        for line in lines:
            line.mend()


def _cut(how: Literal["closed", "silent"]) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        line = scene.random.choice(list(scene.cluster.proxy.lines.values()))
        scene.record.targets.append(line.process)
        if how == "closed":
            line.cut()
        else:
            line.is_silent = True
        try:
            await last(scene, scene.duration(1.0, 20.0))
        finally:
            line.mend()
            if how == "silent":
                line.drop()  # what was held back arrives no more

    return inject


async def _lose_reply(scene: Scene) -> None:
    """Redis has done it, and who asked does not know."""
    point = scene.random.choice([point for point in POINTS if point not in RARE_POINTS])
    await _at_point(scene, point, "after", lambda _: None, loses=True)


def _die_at(action: Literal["kill", "stop"], *points: str) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        point = scene.random.choice(points)
        moment = scene.random.choice(["before", "after"])
        cluster = scene.cluster
        if action == "kill":
            await _at_point(scene, point, moment, lambda name: cluster.kill(cluster.members[name]))
            return
        caught = await _at_point(scene, point, moment, lambda name: cluster.members[name].stop())
        if caught is not None:
            try:
                await last(scene, scene.duration())
            finally:
                cluster.members[caught].go_on()

    return inject


async def _at_point(
    scene: Scene, point: str, moment: str, action: Callable[[str], None], *, loses: bool = False
) -> str | None:
    """Wait for a process to come by a point, and do something to it there; who it was."""
    kinds = POINTS[point]
    if point == "snapshot":  # one is written when the service is asked to stop, too
        member = await scene.leader(scene.random.choice(SERVICES))
        scene.record.targets.pop()
        candidates = [member.name]
    else:
        candidates = [member.name for kind in kinds for member in scene.cluster.of(kind)]
    skip = scene.random.randrange(MOST_SKIPPED) if point in ("commit", "publish") else 0
    rules = [Rule(name, point, moment, _done_to(action, name), loses=loses, skip=skip) for name in candidates]
    scene.note(f"{moment} {point}")
    first = asyncio.Event()
    for rule in rules:
        rule.fired = first  # one for all: only the first that comes by is caught
    scene.cluster.proxy.rules += rules
    try:
        if point == "snapshot":
            scene.cluster.ended_by_us.add(scene.cluster.members[candidates[0]].pid or 0)
            scene.cluster.members[candidates[0]].ask_to_end()
        elif point == "acquire":
            await _unseat(scene)
        if not await until_fired(first, POINT_WAIT_S):
            scene.note("nobody came by")
            return None
        caught = scene.cluster.proxy.caught
        scene.record.targets.append(caught)
        return caught
    finally:
        scene.cluster.proxy.rules = [rule for rule in scene.cluster.proxy.rules if rule not in rules]


async def _unseat(scene: Scene) -> None:
    """Somebody has to acquire a lease: its holder is told by Redis that it has none."""
    await scene.cluster.server.client.delete(f"treadle:lease:{scene.random.choice(SERVICES)}")


def _done_to(action: Callable[[str], None], name: str) -> Callable[[], None]:
    return lambda: action(name)


KINDS = [
    Kind("redis-slow", _slow),
    Kind("cut-off", _cut("closed")),
    Kind("line-silent", _cut("silent")),
    Kind("reply-lost", _lose_reply),
    *(Kind(f"kill-at-{point}", _die_at("kill", point)) for point in MAIN_POINTS),
    *(Kind(f"stop-at-{point}", _die_at("stop", point)) for point in MAIN_POINTS),
    Kind("kill-at-another-point", _die_at("kill", *OTHER_POINTS)),
    Kind("stop-at-another-point", _die_at("stop", *OTHER_POINTS)),
]
