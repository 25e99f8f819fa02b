"""An epoch that ends because its engine died says so, and names who was there alone; a fence and a stop do not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from gpu_node.agent.decisions.actions import GroupEntry, Taken
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.process.engine_process import EngineDiedError, EngineProcess
from gpu_node.agent.process.epoch import Epoch, EpochOverError
from gpu_node.engine.process.protocol.protocol import EngineEvent
from shared.bus import streams
from shared.config.engines.engine import EngineOptions
from shared.messages.codec import FIELD, decode_entry, encode
from shared.messages.nodes.nodes import Fence, NodeGone
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt, Enqueued
from tests.redis.scripted_engine import ScriptedEngine
from tests.redis.waiting import until

OPTIONS = EngineOptions(max_num_seqs=6, step_tokens=64, step_timeout_s=60.0)
EPOCH = "n0-1"


class DyingEngine(ScriptedEngine):
    """Ends as soon as somebody listens."""

    async def events(self) -> list[EngineEvent]:
        raise EngineDiedError("the engine ended with status -11")


def epoch_with(redis: Redis, engine: ScriptedEngine, core: AgentCore) -> Epoch:
    return Epoch(redis, core, cast("EngineProcess", engine), GivenImages("n0", EPOCH, ""), OPTIONS)


def make_core() -> AgentCore:
    return AgentCore("n0", EPOCH, "cpu", OPTIONS)


async def goodbye(redis: Redis) -> NodeGone:
    """The last thing that the scheduler is told."""
    [(_, fields)] = cast("Any", await redis.xrevrange(streams.SCHEDULER, count=1))
    message = decode_entry(fields)
    assert isinstance(message, NodeGone)
    return message


async def test_an_engine_that_dies_is_told_of(redis: Redis) -> None:
    never = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(EngineDiedError):
        await epoch_with(redis, DyingEngine(), make_core()).run(never)
    never.cancel()
    assert await goodbye(redis) == NodeGone(node="n0", epoch=EPOCH, has_crashed=True)


async def test_who_was_tried_alone_is_named(redis: Redis) -> None:
    core, never = make_core(), asyncio.create_task(asyncio.Event().wait())
    payload = Payload("r1", 1, "gw", "", [1], Sampling(max_tokens=3))
    enqueued = Enqueued(request_id="r1", attempt=1, gateway="gw")
    core.handle(Taken("g0", 1, [GroupEntry(b"1-0", enqueued, replace(payload, num_crashes=1))]))
    with pytest.raises(EngineDiedError):
        await epoch_with(redis, DyingEngine(), core).run(never)
    never.cancel()
    assert (await goodbye(redis)).blamed == [Attempt("r1", 1)]


async def test_a_fence_is_no_crash(redis: Redis) -> None:
    never = asyncio.create_task(asyncio.Event().wait())
    life = asyncio.create_task(epoch_with(redis, ScriptedEngine(), make_core()).run(never))

    async def has_beaten() -> bool:
        return await redis.exists(streams.SCHEDULER) == 1

    await until(has_beaten)
    await redis.xadd(streams.node_inbox("n0"), {FIELD: encode(Fence(node="n0", epoch=EPOCH))})
    with pytest.raises(EpochOverError):
        await life
    never.cancel()
    assert await goodbye(redis) == NodeGone(node="n0", epoch=EPOCH)


async def test_nor_is_a_stop(redis: Redis) -> None:
    stop = asyncio.create_task(asyncio.sleep(0, result=True))
    await epoch_with(redis, ScriptedEngine(), make_core()).run(stop)
    assert await goodbye(redis) == NodeGone(node="n0", epoch=EPOCH)
