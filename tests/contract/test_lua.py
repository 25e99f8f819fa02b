"""The one message that is not built by the codec: `Pulled`, packed by Redis with cmsgpack."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_node.agent.decisions.actions import Pull
from gpu_node.agent.process.node_bus import NodeBus
from shared.bus import streams
from shared.messages.codec import FIELD, decode, encode
from shared.messages.requests.requests import Attempt, Enqueued, Pulled
from tests.contract.other_side import unpack

# lengths and counts on both sides of MessagePack's borders: short and long strings, arrays and integers
REQUESTS = [Attempt("r", 0), Attempt("r" * 31, 127), Attempt("r" * 32, 128), Attempt("ä" * 200, 65_536)]


async def pulled(redis: Redis, requests: list[Attempt]) -> bytes:
    for request in requests:
        enqueued = Enqueued(request_id=request.request_id, attempt=request.attempt, gateway="gw-0", traceparent="00-a")
        await redis.xadd(streams.group("g-1"), {FIELD: encode(enqueued)})
    await NodeBus(redis, "node-0", "e-1").pull(Pull("g-1", len(requests)))
    entries: Any = await redis.xrange(streams.QUEUE)
    [(_, fields)] = entries
    data: bytes = fields[FIELD]
    return data


@pytest.mark.parametrize("requests", [REQUESTS, [Attempt(f"r-{n}", n) for n in range(40)]], ids=["borders", "many"])
async def test_pulled_from_lua_is_the_same_message(redis: Redis, requests: list[Attempt]) -> None:
    data = await pulled(redis, requests)
    expected = Pulled(node="node-0", epoch="e-1", group="g-1", requests=requests, number=1)
    assert decode(data) == expected
    assert unpack(data) == unpack(encode(expected))
