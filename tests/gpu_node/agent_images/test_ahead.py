"""An image that is read while it grows comes as it was, behind what is there; whatever fails, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest
from prometheus_client import REGISTRY

from gpu_node.agent.decisions.actions import ImageBegun
from gpu_node.agent.decisions.evictions import MAX_AHEAD
from gpu_node.agent.images.given_images import GivenImages, ImageRefusedError
from gpu_node.agent.images.image_ahead import AHEAD_SHARE, outcome
from gpu_node.agent.images.image_fetcher import FetchLimits, ImageFetcher
from gpu_node.agent.images.image_transfer import TransferError
from gpu_node.agent.images.piece_stream import PIECE_BYTES, num_body_bytes, num_content_bytes
from gpu_node.engine.process.protocol.growth_protocol import ImageGrown
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image, ImageFile
from shared.messages.requests.requests import Attempt, ImageTicket
from tests.gpu_node.agent_images.giver import content
from tests.image_files import read
from tests.redis.image_port import image_port
from tests.redis.waiting import until

SIZE = 3 * PIECE_BYTES + 17
MIB = 1 << 20
LIMITS = FetchLimits(fetch_s=10.0, turn_s=10.0, connect_s=2.0, stall_s=5.0)


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@dataclass
class Growing:
    """An image of `SIZE` bytes, as its engine writes it."""

    given: GivenImages
    number: int
    fd: int
    ticket: ImageTicket | None = None

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def grow(self, num_bytes: int) -> ImageBegun | None:
        """So much of it can be read."""
        os.pwrite(self.fd, content(SIZE)[:num_bytes], 0)
        begun = self.given.grow(ImageGrown("r", 0, self.number, ImageFile(self.path, SIZE + 100), num_bytes))
        self.ticket = begun.ticket if begun is not None else self.ticket
        return begun

    def end(self) -> ImageTicket:
        """It is whole."""
        self.grow(SIZE)
        held = self.given.hold(Image("r", 0, self.number, ImageFile(self.path, SIZE)))
        assert held.ticket is not None
        assert self.ticket is not None
        assert (held.ticket.url, held.ticket.token) == (self.ticket.url, self.ticket.token)
        return held.ticket


@dataclass
class Giver:
    """A node whose images grow."""

    given: GivenImages
    num_images: int = 0

    def open(self, num_bytes: int) -> tuple[Growing, ImageTicket]:
        self.num_images += 1
        fd = os.memfd_create("growing", os.MFD_CLOEXEC)
        os.ftruncate(fd, SIZE + 100)
        one = Growing(self.given, self.num_images, fd)
        begun = one.grow(num_bytes)
        assert begun is not None
        assert begun.attempt == Attempt("r", 0)
        return one, begun.ticket


@asynccontextmanager
async def giving(ttl_s: float = 60.0) -> AsyncIterator[Giver]:
    holding: list[GivenImages] = []
    async with image_port(lambda: holding[0] if holding else None) as base_url:
        holding.append(GivenImages("giver", "giver-1", base_url, ttl_s))
        yield Giver(holding[0])
        holding[0].clear()


@pytest.fixture
def taker() -> Iterator[ImageFetcher]:
    one = ImageFetcher(512 * MIB, lambda: 0, LIMITS)
    yield one
    one.close()


async def has_read(taker: ImageFetcher, ticket: ImageTicket, num_bytes: int) -> None:
    """Until so much of it is there."""

    async def is_there() -> bool:
        return taker.ahead.num_read(ticket.url) == num_bytes

    await until(is_there)


async def has_none(taker: ImageFetcher) -> None:
    """Until nothing is read ahead any more."""

    async def is_over() -> bool:
        return len(taker.ahead) == 0

    await until(is_over)


@pytest.mark.parametrize("num_bytes", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, SIZE])
def test_a_body_tells_how_much_of_an_image_is_in_it(num_bytes: int) -> None:
    assert num_content_bytes(num_body_bytes(num_bytes)) == num_bytes


async def test_what_grows_is_read_as_it_grows_and_only_the_rest_comes_when_it_is_whole(taker: ImageFetcher) -> None:
    before = counted("treadle_kv_transfer_bytes_total", direction="out")
    ahead = counted("treadle_kv_transfer_ahead_bytes_total")
    async with giving() as giver:
        image, ticket = giver.open(1_000)
        taker.read_ahead(ticket)
        taker.read_ahead(ticket)
        for num_bytes in (1_000, PIECE_BYTES + 5, 2 * PIECE_BYTES):
            image.grow(num_bytes)
            await has_read(taker, ticket, num_bytes)
        file, seconds = await taker.fetch(image.end())
        assert read(file) == content(SIZE)
        assert seconds > 0
        assert await giver.given.released() == [image.number]
        assert len(taker.ahead) == 0
    assert counted("treadle_kv_transfer_bytes_total", direction="out") - before == SIZE, "each byte once"
    assert 2 * PIECE_BYTES <= counted("treadle_kv_transfer_ahead_bytes_total") - ahead <= SIZE


async def test_all_of_it_may_be_there_before_it_is_fetched(taker: ImageFetcher) -> None:
    async with giving() as giver:
        image, ticket = giver.open(1_000)
        taker.read_ahead(ticket)
        whole = image.end()
        await has_read(taker, ticket, SIZE)
        assert read((await taker.fetch(whole))[0]) == content(SIZE)
        assert await giver.given.released() == [image.number]


async def test_another_taker_reads_the_same_image_from_its_beginning(taker: ImageFetcher) -> None:
    async with giving() as giver:
        image, ticket = giver.open(PIECE_BYTES)
        taker.read_ahead(ticket)
        await has_read(taker, ticket, PIECE_BYTES)
        other = ImageFetcher(512 * MIB, lambda: 0, LIMITS)
        assert read((await other.fetch(image.end()))[0]) == content(SIZE)
        other.close()
        await has_none(taker)


@pytest.mark.parametrize("end", ["ended", "expired", "dropped", "epoch", "aborted port"])
async def test_what_goes_nowhere_is_dropped_by_who_reads_it(taker: ImageFetcher, end: str) -> None:
    async with giving(ttl_s=0.05 if end == "expired" else 60.0) as giver:
        image, ticket = giver.open(1_000)
        taker.read_ahead(ticket)
        match end:
            case "ended":
                giver.given.end(image.number)
            case "dropped":
                giver.given.drop([Attempt("r", 0)])
            case "epoch":
                giver.given.clear()
        if end != "aborted port":
            await has_none(taker)
            assert await giver.given.released() == [image.number]
    await has_none(taker)


async def test_bytes_that_were_read_of_another_image_are_not_gone_on_from(taker: ImageFetcher) -> None:
    async with giving() as giver:
        image, ticket = giver.open(1_000)
        taker.read_ahead(ticket)
        await has_read(taker, ticket, 1_000)
        whole = image.end()
        stranger = msgspec.structs.replace(whole, token="of another life")
        assert (await taker.fetch(stranger))[0] == NO_IMAGE
        assert read((await taker.fetch(whole))[0]) == content(SIZE)


async def test_an_image_is_fetched_by_nobody_before_it_is_whole(taker: ImageFetcher) -> None:
    async with giving() as giver:
        image, ticket = giver.open(1_000)
        name = ticket.url.rpartition("/")[2]
        with pytest.raises(ImageRefusedError, match="not whole"):
            giver.given.claim(name, ticket.token)
        with pytest.raises(ImageRefusedError, match="token"):
            giver.given.read(name, "wrong")
        whole = image.end()
        with pytest.raises(ImageRefusedError, match="bytes"):
            giver.given.claim(name, ticket.token, SIZE + 1)
        assert read((await taker.fetch(whole))[0]) == content(SIZE)


async def test_what_is_read_ahead_has_a_part_of_the_room_and_goes_where_an_image_is_waited_for() -> None:
    capacity = int(2 * (SIZE + 100) / AHEAD_SHARE)
    taker = ImageFetcher(capacity, lambda: 0, LIMITS)
    async with giving() as giver:
        images = [giver.open(1_000) for _ in range(3)]
        for _, ticket in images:
            taker.read_ahead(ticket)
        assert len(taker.ahead) == 2, "the third finds no room"
        await has_read(taker, images[1][1], 1_000)
        others = [giver.open(1_000)[0].end() for _ in range(3)]
        files = [(await taker.fetch(ticket))[0] for ticket in others]
        assert [read(file) == content(SIZE) for file in files] == [True] * 3
        assert len(taker.ahead) == 1, "the newest has gone"
        for file in files:
            taker.close_file(file)
        assert read((await taker.fetch(images[1][0].end()))[0]) == content(SIZE)
    taker.close()


async def test_so_many_are_read_ahead_and_no_more(taker: ImageFetcher) -> None:
    async with giving() as giver:
        for _ in range(MAX_AHEAD + 1):
            taker.read_ahead(giver.open(1_000)[1])
        assert len(taker.ahead) == MAX_AHEAD


async def test_who_is_given_up_leaves_nothing_behind(taker: ImageFetcher) -> None:
    async with giving() as giver:
        image, ticket = giver.open(1_000)
        taker.read_ahead(ticket)
        await has_read(taker, ticket, 1_000)
        fetching = asyncio.create_task(taker.fetch(image.end()))
        await asyncio.sleep(0)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert len(taker.ahead) == 0
        other = giver.open(1_000)[0].end()
        assert read((await taker.fetch(other))[0]) == content(SIZE)


async def test_a_reader_that_is_cancelled_before_its_thread_fails_leaves_no_error_that_nobody_hears() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    running: Future[int] = Future()
    reading = asyncio.create_task(outcome(running))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    running.set_exception(TransferError("stopped", "nobody waits for it any more"))
    await asyncio.sleep(0)
    del reading, running
    await asyncio.sleep(0)
    gc.collect()
    assert told == []
