"""Entries that nobody should have written: undecodable ones, and copies of good ones, in every stream there is."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from redis.exceptions import RedisError

from shared.bus import streams
from shared.messages.codec import FIELD
from tests.chaos.faults.fault import Kind, Scene

_STREAMS = (streams.QUEUE, streams.SCHEDULER, streams.KV)
_PATTERNS = ("treadle:node:*", "treadle:tokens:*", "treadle:group:*")
TRIES = 40
_PAUSE_S = 0.05


async def _all_streams(scene: Scene) -> list[str]:
    client = scene.cluster.server.client
    found = list(_STREAMS)
    for pattern in _PATTERNS:
        found += [key.decode() async for key in client.scan_iter(pattern, count=1000)]
    return found


def bad_values(random: Random) -> list[dict[Any, Any]]:
    """Fields that no message has: invalid text, no MessagePack, too deep, of nobody's type, no field at all."""
    return [
        {FIELD: b"\x81\xa4type\xa4\xff\xfe\xfd\xfc"},
        {FIELD: random.randbytes(40)},
        {FIELD: b"\x91" * 5000 + b"\xc0"},
        {FIELD: b"\x81\xa4type\xa6nobody"},
        {"other": b"no message"},
        {FIELD: b""},
    ]


async def _append(scene: Scene, stream: str, fields: dict[Any, Any]) -> None:
    """Into a stream that is there; the checker must know which entries are ours."""
    entry_id: Any = await scene.cluster.server.client.xadd(stream, dict(fields), nomkstream=True)
    if entry_id is not None:
        scene.record.injected.append(f"{stream} {entry_id.decode()}")


async def _bad(scene: Scene) -> None:
    """One of each in each stream; into group streams while there are any."""
    kinds = set()
    for _ in range(TRIES):
        found = await _all_streams(scene)
        kinds = {stream.split(":")[1] for stream in found}
        if "group" in kinds:
            break
        await asyncio.sleep(_PAUSE_S)
    values = bad_values(scene.random)
    for stream in found:
        for fields in values:
            await _append(scene, stream, fields)
    scene.record.targets += sorted(kinds)
    scene.note(f"{len(values)} entries in each of {len(found)} streams")


async def _double(scene: Scene) -> None:
    """The newest entries of each stream once more: as a sender would that did not know whether it had sent."""
    client = scene.cluster.server.client
    for _ in range(TRIES):
        for stream in await _all_streams(scene):
            try:
                newest: Any = await client.xrevrange(stream, count=2)
                for _, fields in newest:
                    await _append(scene, stream, fields)
            except RedisError as error:  # a group that has just been dropped
                scene.note(str(error))
        await asyncio.sleep(_PAUSE_S)
    scene.note(f"{len(scene.record.injected)} entries doubled")


KINDS = [Kind("bad-entries", _bad), Kind("doubled-entries", _double)]
