"""An image comes as it was, or is lost within a bounded time with a word that says why; the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from prometheus_client import REGISTRY

from gpu_node.agent.images.given_images import GivenImages, ImageRefusedError
from gpu_node.agent.images.image_fetcher import MAX_FETCHES, FetchLimits, ImageFetcher
from gpu_node.agent.images.piece_stream import HEAD, PIECE_BYTES, head_of, num_body_bytes, parts
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image
from shared.messages.requests.requests import Attempt, ImageTicket
from tests.gpu_node.agent_images.giver import content
from tests.image_files import laid, read
from tests.redis.image_port import image_port
from tests.redis.waiting import until

SIZE = 3 * PIECE_BYTES + 17
MIB = 1 << 20
ESTABLISHED = "01"
QUICK = FetchLimits(fetch_s=5.0, turn_s=5.0, connect_s=1.0, stall_s=0.2)
ROOM = 512 * MIB


def failures(reason: str) -> float:
    """So far."""
    return REGISTRY.get_sample_value("treadle_kv_transfer_failures_total", {"reason": reason}) or 0.0


@contextmanager
def fetcher(
    capacity_bytes: int = ROOM, limits: FetchLimits = QUICK, used: Callable[[], int] = lambda: 0
) -> Iterator[ImageFetcher]:
    one = ImageFetcher(capacity_bytes, used, limits)
    yield one
    one.close()


@dataclass
class Giver:
    """A node that holds images, in this process."""

    given: GivenImages
    num_held: int = 0
    tickets: list[ImageTicket] = field(default_factory=list)

    def hold(self, data: bytes, attempt: int = 0) -> ImageTicket:
        self.num_held += 1
        held = self.given.hold(Image("r", attempt, self.num_held, laid(data)))
        assert held.ticket is not None
        return held.ticket


@asynccontextmanager
async def giving(ttl_s: float = 60.0, stall_s: float = 5.0, max_served: int = 16) -> AsyncIterator[Giver]:
    holding: list[GivenImages] = []
    async with image_port(lambda: holding[0] if holding else None, stall_s, max_served) as base_url:
        holding.append(GivenImages("giver", "giver-1", base_url, ttl_s))
        yield Giver(holding[0])
        holding[0].clear()


@contextmanager
def giving_process(num_bytes: int) -> Iterator[tuple[subprocess.Popen[str], ImageTicket]]:
    """Another process that holds one image."""
    command = [sys.executable, "-m", "tests.gpu_node.agent_images.giver", str(num_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, msgspec.json.decode(process.stdout.readline(), type=ImageTicket)
        finally:
            process.kill()


@pytest.mark.parametrize("num_bytes", [1, PIECE_BYTES, SIZE])
async def test_an_image_comes_as_it_was_once_and_its_memory_is_free_at_both_ends(num_bytes: int) -> None:
    async with giving() as giver:
        with fetcher() as one:
            ticket = giver.hold(content(num_bytes))
            file, seconds = await one.fetch(ticket)
            assert read(file) == content(num_bytes)
            assert seconds > 0
            assert await giver.given.released() == [1]
            assert (await one.fetch(ticket))[0] == NO_IMAGE, "it is gone with that"
            one.close_file(file)
            with pytest.raises(FileNotFoundError):
                read(file)


async def test_another_process_gives_what_is_larger_than_redis_ever_took() -> None:
    num_bytes = 80 * MIB
    with giving_process(num_bytes) as (_, ticket), fetcher(2 * num_bytes) as one:
        assert read((await one.fetch(ticket))[0]) == content(num_bytes)


@pytest.mark.parametrize("max_served", [16, 1])
async def test_many_at_a_time_wait_for_their_turn_at_either_end(max_served: int) -> None:
    async with giving(max_served=max_served) as giver:
        with fetcher() as one:
            tickets = [giver.hold(content(SIZE + number), number) for number in range(2 * MAX_FETCHES)]
            files = await asyncio.gather(*(one.fetch(ticket) for ticket in tickets))
            for number, (file, _) in enumerate(files):
                assert read(file) == content(SIZE + number)


# --- what a giver refuses -------------------------------------------------------------------------------------------


async def test_nobody_gets_an_image_without_its_token_and_it_stays_for_who_has_it() -> None:
    async with giving() as giver:
        with fetcher() as one:
            ticket, other = giver.hold(content(SIZE)), giver.hold(content(9), 1)
            before = failures("refused")
            with pytest.raises(ImageRefusedError):
                giver.given.claim(ticket.url.rpartition("/")[2], "\udcff")  # as bytes of a header may come
            for token in ("", "wrong", other.token):
                assert (await one.fetch(msgspec.structs.replace(ticket, token=token)))[0] == NO_IMAGE
            assert failures("refused") == before + 6, "both ends count it, each of three"
            assert read((await one.fetch(ticket))[0]) == content(SIZE)


def test_a_ticket_does_not_show_its_token() -> None:
    ticket = ImageTicket("n", "http://n:1/images/v1/e-1", "the secret", 9)
    assert "the secret" not in f"{ticket} {ticket!r} {[ticket]}"


async def test_what_was_dropped_is_over_or_of_another_epoch_is_gone() -> None:
    async with giving(ttl_s=0.05) as giver:
        with fetcher() as one:
            dropped, expired = giver.hold(content(9)), giver.hold(content(9), 1)
            giver.given.drop([Attempt("r", 0), Attempt("r", 7)])
            assert await giver.given.released() == [1]
            assert await giver.given.released() == [2], "its time is over"
            before = failures("gone")
            assert (await one.fetch(dropped))[0] == NO_IMAGE
            assert (await one.fetch(expired))[0] == NO_IMAGE
            assert failures("gone") == before + 4, "at both ends"


async def test_an_epoch_that_ends_serves_who_is_being_served_and_nobody_else() -> None:
    async with giving() as giver:
        ticket = giver.hold(content(9))
        image = giver.given.claim(ticket.url.rpartition("/")[2], ticket.token)
        giver.given.clear()
        assert bytes(image.content) == content(9)
        giver.given.unclaim(image, is_whole=True)
        assert len(giver.given) == 0
        await asyncio.wait_for(giver.given.emptied(), 1.0)


# --- givers that fail -----------------------------------------------------------------------------------------------


async def test_a_giver_that_is_killed_or_not_there_is_no_giver() -> None:
    with giving_process(SIZE) as (process, ticket), fetcher() as one:
        process.kill()
        process.wait()
        before = failures("unreachable")
        assert (await one.fetch(ticket))[0] == NO_IMAGE
        assert failures("unreachable") == before + 1


async def test_a_giver_that_stands_still_is_given_up_in_time_and_others_are_fetched_meanwhile() -> None:
    with giving_process(SIZE) as (process, ticket), fetcher() as one:
        process.send_signal(signal.SIGSTOP)
        before = failures("slow")
        async with giving() as giver:
            stuck = asyncio.create_task(one.fetch(ticket))
            assert read((await one.fetch(giver.hold(content(SIZE))))[0]) == content(SIZE)
        assert (await stuck)[0] == NO_IMAGE
        assert failures("slow") == before + 1


async def test_a_giver_that_dies_while_it_gives() -> None:
    with giving_process(SIZE) as (process, ticket), fetcher(limits=FetchLimits(stall_s=60.0)) as one:
        process.send_signal(signal.SIGSTOP)  # its system takes the connection
        fetching = asyncio.create_task(one.fetch(ticket))
        await until(lambda: is_connected(ticket))
        process.kill()
        assert (await fetching)[0] == NO_IMAGE


async def is_connected(ticket: ImageTicket) -> bool:
    """Whether this process has a connection to its port."""
    port = int(ticket.url.split(":")[2].partition("/")[0])
    table = await asyncio.to_thread(Path("/proc/self/net/tcp").read_text)
    fields = [line.split() for line in table.splitlines()[1:]]
    return any(peer.endswith(f":{port:04X}") and state == ESTABLISHED for _, _, peer, state, *_ in fields)


Say = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def asked(say: Say) -> AsyncIterator[ImageTicket]:
    """A node that says this to whoever asks, for an image of `SIZE` bytes; at the end nobody is asking any more."""
    talks: set[asyncio.Task[None]] = set()
    began = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        began.set()
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            await say(reader, writer)
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield ImageTicket("liar", f"http://127.0.0.1:{port}/images/v1/x", "t", SIZE)
        await began.wait()
        await asyncio.gather(*talks)


def answering(answer: bytes, *, hangs: bool = False) -> AbstractAsyncContextManager[ImageTicket]:
    """It says just this, once."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        if hangs:
            await reader.read()

    return asked(say)


def whole(num_bytes: int = SIZE) -> bytes:
    """What a sound node says."""
    data = memoryview(content(num_bytes))
    body = b"".join(head_of(data[part]) + data[part] for part in parts(num_bytes))
    assert len(body) == num_body_bytes(num_bytes)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def flipped(data: bytes, place: int) -> bytes:
    """With one other bit."""
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


async def test_what_is_said_by_a_sound_node_is_taken() -> None:
    async with answering(whole()) as ticket:
        with fetcher() as one:
            assert read((await one.fetch(ticket))[0]) == content(SIZE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (flipped(whole(), -1), "damaged"),
        (flipped(whole(), -SIZE // 2), "damaged"),
        (flipped(whole(), -18), "damaged"),
        (whole()[:-1], "truncated"),
        (whole()[: -2 * PIECE_BYTES - HEAD.size], "truncated"),
        (whole(SIZE - 1), "truncated"),
        (whole(SIZE + 1), "truncated"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "unreachable"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "truncated"),
        (b"SSH-2.0-OpenSSH\r\n", "unreachable"),
        (b"", "unreachable"),
    ],
)
async def test_what_is_not_the_image_is_not_taken(answer: bytes, reason: str) -> None:
    async with answering(answer) as ticket:
        with fetcher() as one:
            before = failures(reason)
            assert (await one.fetch(ticket))[0] == NO_IMAGE
            assert failures(reason) == before + 1


@pytest.mark.parametrize("num_said", [0, 20, SIZE // 2])
async def test_a_node_that_stops_in_the_middle_is_given_up(num_said: int) -> None:
    async with answering(whole()[:num_said], hangs=True) as ticket:
        with fetcher() as one:
            before = failures("slow")
            assert (await one.fetch(ticket))[0] == NO_IMAGE
            assert failures("slow") == before + 1


async def test_one_that_drips_is_given_up_when_its_time_is_over() -> None:
    """Each read brings something, so none of them stalls."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        for byte in whole():
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with asked(drip) as ticket:
        with fetcher(limits=FetchLimits(fetch_s=0.3, stall_s=60.0)) as one:
            before = failures("slow")
            assert (await one.fetch(ticket))[0] == NO_IMAGE
            assert failures("slow") == before + 1


# --- receivers that fail --------------------------------------------------------------------------------------------


async def test_an_image_waits_on_where_a_receiver_dies_in_the_middle() -> None:
    async with giving() as giver:
        ticket = giver.hold(content(32 * MIB))
        place = ticket.url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(place[0], int(place[1]))
        path = "/" + ticket.url.split("/", 3)[3]
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ticket.token}\r\n\r\n".encode())
        await reader.readexactly(PIECE_BYTES)
        with fetcher() as one:
            assert (await one.fetch(ticket))[0] == NO_IMAGE, "it is being fetched"
            writer.transport.abort()
            files = []

            async def is_there() -> bool:
                files.append((await one.fetch(ticket))[0])
                return files[-1] != NO_IMAGE

            await until(is_there)
            assert read(files[-1]) == content(32 * MIB)


async def test_a_receiver_that_stands_still_is_given_up_and_the_image_waits_on() -> None:
    async with giving(stall_s=0.1) as giver:
        ticket = giver.hold(content(32 * MIB))
        place = ticket.url.split("/")[2].split(":")
        _, writer = await asyncio.open_connection(place[0], int(place[1]), limit=1)
        path = "/" + ticket.url.split("/", 3)[3]
        before = failures("slow")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ticket.token}\r\n\r\n".encode())

        async def is_given_up() -> bool:
            return failures("slow") > before

        await until(is_given_up)
        writer.transport.abort()
        with fetcher() as one:
            assert read((await one.fetch(ticket))[0]) == content(32 * MIB)


async def test_a_receiver_without_room_does_not_ask() -> None:
    async with giving() as giver:
        ticket = giver.hold(content(SIZE))
        with fetcher(capacity_bytes=SIZE - 1) as one:
            before = failures("room")
            assert (await one.fetch(ticket))[0] == NO_IMAGE
            assert failures("room") == before + 1
        with fetcher(capacity_bytes=SIZE, used=lambda: 1, limits=FetchLimits(turn_s=0.1)) as one:
            assert (await one.fetch(ticket))[0] == NO_IMAGE, "not in time"
        with fetcher(capacity_bytes=SIZE) as one:
            assert read((await one.fetch(ticket))[0]) == content(SIZE)


async def test_room_is_waited_for() -> None:
    async with giving() as giver:
        first, second = giver.hold(content(SIZE)), giver.hold(content(SIZE), 1)
        with fetcher(capacity_bytes=SIZE) as one:
            file, _ = await one.fetch(first)
            waiting = asyncio.create_task(one.fetch(second))
            await asyncio.sleep(0)
            one.close_file(file)  # the engine has it
            assert read((await waiting)[0]) == content(SIZE)


async def test_a_fetch_that_is_stopped_leaves_nothing() -> None:
    async with answering(whole()[: SIZE // 2], hangs=True) as ticket:
        with fetcher(limits=FetchLimits(stall_s=60.0)) as one:
            fetching = asyncio.create_task(one.fetch(ticket))
            await until(lambda: is_connected(ticket))
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
