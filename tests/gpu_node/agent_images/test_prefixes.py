"""A node asks another for what it has cached of a prompt: it comes as it was, or in time a word says why not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from gpu_node.agent.decisions.actions import FetchPrefix
from gpu_node.agent.decisions.given_prefixes import MAX_ASKS
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.agent.images.image_server import ImageServer
from gpu_node.agent.images.prefix_asker import PrefixAsker
from gpu_node.agent.images.prefix_giver import PrefixGiver
from gpu_node.agent.images.prefix_server import PrefixServer
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied
from gpu_node.engine.process.protocol.protocol import NO_IMAGE
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.prefixes.prefix_sources import KvDoor, PrefixSource
from shared.messages.requests.payload import Payload, Sampling
from shared.service.admin.admin import listen
from tests.gpu_node.agent_images.giver import content
from tests.image_files import laid, read
from tests.redis.waiting import until

HOST = "127.0.0.1"
SIZE = 5_000_017
DATA = content(SIZE)
PROMPT = list(range(40))
PARTITION = "0f" * 16
PAYLOAD = Payload("r", 3, "g", "smol", PROMPT, Sampling(max_tokens=1))
ASK = PrefixAsk("r", 3, "smol", "legal", "f", PROMPT, 16, PARTITION)


class Engine:
    """The giver's: it answers as it is told to."""

    def __init__(self) -> None:
        self.told: list[CopyPrefix] = []
        self.answers = True
        self.has_it = True
        self.giver: PrefixGiver

    async def send(self, command: CopyPrefix) -> None:
        self.told.append(command)
        if self.answers:
            self.answer(command.number)

    def answer(self, number: int) -> None:
        self.giver.copied(PrefixCopied(number, 70 + number, laid(DATA) if self.has_it else NO_IMAGE))


class Node:
    """A giver with its port, and what another one asks it with."""

    def __init__(self, base_url: str, copy_s: float) -> None:
        self.engine = Engine()
        self.given = GivenImages("giver", "giver-1", base_url)
        self.door = KvDoor(base_url, "right")
        self.giver: PrefixGiver | None = PrefixGiver(self.given, self.door, self.engine.send, copy_s)
        self.engine.giver = self.giver
        self.fetcher = ImageFetcher(1 << 30, lambda: 0)

    async def fetch(self, within_s: float = 20.0, door: KvDoor | None = None, answer_s: float = 20.0) -> bytes:
        payload = replace(PAYLOAD, adapter="legal", partition=PARTITION)
        source = PrefixSource("giver", door or self.door, 32, "f", within_s)
        file, _ = await PrefixAsker(self.fetcher, answer_s).fetch(FetchPrefix(payload, source, 16))
        data = read(file)
        self.fetcher.close_file(file)
        return data

    def has_asked(self, number: int) -> Callable[[], Awaitable[bool]]:
        async def holds() -> bool:
            assert self.giver is not None
            return self.giver.num_asked == number

        return holds


@asynccontextmanager
async def node(copy_s: float = 20.0) -> AsyncIterator[Node]:
    holding: list[Node] = []
    images, prefixes = ImageServer(lambda: holding[0].given), PrefixServer(lambda: holding[0].giver)
    app = web.Application()
    app.add_routes([*images.routes(), *prefixes.routes()])
    runner = await listen(app, HOST, 0, drain_s=0.1)
    holding.append(Node(f"http://{HOST}:{runner.addresses[0][1]}", copy_s))
    try:
        yield holding[0]
    finally:
        await runner.cleanup()
        images.close()
        holding[0].given.clear()
        holding[0].fetcher.close()


def count(result: str) -> float:
    return REGISTRY.get_sample_value("treadle_node_prefix_fetches_total", {"result": result}) or 0.0


async def test_it_comes_as_the_engine_has_copied_it_and_is_released() -> None:
    before = count("fetched")
    async with node() as one:
        assert await one.fetch() == DATA
        assert one.engine.told == [CopyPrefix(1, ASK)]
        assert await one.given.released() == [71]
        assert await one.fetch() == DATA
    assert count("fetched") == before + 2


@pytest.mark.parametrize(
    ("reason", "result"),
    [
        ("forgotten", "gone"),
        ("no epoch", "gone"),
        ("wrong token", "refused"),
        ("slow engine", "busy"),
        ("dead", "unreachable"),
    ],
)
async def test_why_nothing_comes_is_counted(reason: str, result: str) -> None:
    before = count(result)
    async with node(copy_s=0.05 if reason == "slow engine" else 20.0) as one:
        one.engine.has_it = reason != "forgotten"
        one.engine.answers = reason != "slow engine"
        if reason == "no epoch":
            one.giver = None
        doors = {"wrong token": replace_token(one.door), "dead": KvDoor(f"http://{HOST}:1", "right")}
        assert await one.fetch(door=doors.get(reason)) == b""
        assert len(one.given) == 0
    assert count(result) == before + 1


def replace_token(door: KvDoor) -> KvDoor:
    return KvDoor(door.url, "wrong")


async def test_a_giver_that_says_nothing_is_not_waited_for_as_long_as_computing_takes() -> None:
    before = count("late")
    async with node() as one:
        one.engine.answers = False
        assert await one.fetch(within_s=float("inf"), answer_s=0.05) == b""
        await until(one.has_asked(1))
        one.engine.answers, one.engine.has_it = True, False
        one.engine.answer(1)
    assert count("late") == before + 1


async def test_a_giver_that_stands_still_is_not_waited_for_and_its_late_copy_is_dropped() -> None:
    before = count("late")
    async with node() as one:
        one.engine.answers = False
        assert await one.fetch(within_s=0.05) == b""
        await until(one.has_asked(0))
        one.engine.answer(1)
        assert one.engine.told == [CopyPrefix(1, ASK)]
        assert await one.given.released() == [71]
        assert len(one.given) == 0
    assert count("late") == before + 1


async def test_a_few_are_answered_at_a_time() -> None:
    before = count("busy")
    async with node() as one:
        one.engine.answers = False
        waiting = [asyncio.create_task(one.fetch()) for _ in range(MAX_ASKS)]
        await until(one.has_asked(MAX_ASKS))
        assert await one.fetch() == b""
        for number in range(MAX_ASKS):
            one.engine.answer(number + 1)
        assert await asyncio.gather(*waiting) == [DATA] * MAX_ASKS
    assert count("busy") == before + 1


async def test_a_question_that_does_not_decode_is_refused() -> None:
    async with node() as one:
        payload = Payload("r", 3, "g", "smol", [-1, 2], Sampling(max_tokens=1))
        source = PrefixSource("giver", one.door, 32, "f", 20.0)
        before = count("refused")
        await PrefixAsker(one.fetcher).fetch(FetchPrefix(payload, source, 16))
        assert count("refused") == before + 1
        assert one.engine.told == []
