"""Processes that die or hang: one, both of a service, the engine of a node."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import psutil

from tests.chaos.faults.fault import KINDS_OF_PROCESS, SERVICES, Kind, Scene, SkippedError, last


def _kill(kind: str) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        member = await scene.leader(kind) if kind in SERVICES else scene.choose(kind)
        scene.cluster.kill(member)

    return inject


def _stop(kind: str) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        member = await scene.leader(kind) if kind in SERVICES else scene.choose(kind)
        member.stop()
        try:
            await last(scene, scene.duration())
        finally:
            member.go_on()

    return inject


async def _kill_pair(scene: Scene) -> None:
    """Leader and standby of a service at once."""
    for member in scene.cluster.of(scene.random.choice(SERVICES)):
        scene.record.targets.append(member.name)
        scene.cluster.kill(member)


async def _stop_all(scene: Scene, kind: str, least_s: float) -> None:
    members = scene.cluster.of(kind)
    scene.record.targets += [member.name for member in members]
    for member in members:
        member.stop()
    try:
        await last(scene, scene.duration(least_s))
    finally:
        for member in members:
            member.go_on()


async def _stop_pair(scene: Scene) -> None:
    """Leader and standby of a service hang, for long enough that the lease runs out."""
    await _stop_all(scene, scene.random.choice(SERVICES), least_s=8.0)


async def _stop_nodes(scene: Scene) -> None:
    """All nodes are silent, so that it may be the line as well."""
    await _stop_all(scene, "node", least_s=8.0)


async def _stop_gateways(scene: Scene) -> None:
    await _stop_all(scene, "gateway", least_s=4.0)


def _engine(scene: Scene) -> psutil.Process:
    children = scene.choose("node").children()
    if not children:
        raise SkippedError("that node had no engine at this moment")
    return children[0]


def _signal_engine(number: signal.Signals) -> Callable[[Scene], Awaitable[None]]:
    async def inject(scene: Scene) -> None:
        _engine(scene).send_signal(number)

    return inject


async def _stop_engine(scene: Scene) -> None:
    """The agent beats, and no token is made."""
    engine = _engine(scene)
    engine.suspend()
    try:
        await last(scene, scene.duration())
    finally:
        if engine.is_running():
            engine.resume()


KINDS = [
    *(Kind(f"kill-{kind}", _kill(kind)) for kind in KINDS_OF_PROCESS),
    *(Kind(f"stop-{kind}", _stop(kind)) for kind in KINDS_OF_PROCESS),
    Kind("kill-pair", _kill_pair),
    Kind("stop-pair", _stop_pair),
    Kind("stop-all-nodes", _stop_nodes),
    Kind("stop-all-gateways", _stop_gateways),
    Kind("engine-killed", _signal_engine(signal.SIGKILL)),
    Kind("engine-aborted", _signal_engine(signal.SIGABRT)),
    Kind("engine-hangs", _stop_engine),
]
