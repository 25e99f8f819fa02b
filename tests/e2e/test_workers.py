"""Two gateway processes on one port: one may die or be replaced, and nobody else notices.

Both call each tenant's caches by the same name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import psutil
import pytest

from shared.config.engines.engine import EngineOptions
from shared.messages.prefixes.partitions import partition_of
from tests.e2e.cluster import POLL_S, Cluster, runs, wait_for

ALL, FEW, ACME, BOLT = ({"Authorization": f"Bearer {key}"} for key in ("all", "few", "acme", "bolt"))
NUM_FEW = 8  # requests of a key within a minute
LONG, SHORT = 700, 4  # tokens; a long answer takes seconds
NUM_STREAMS = 12
MAX_CONNECTIONS = 60  # until each worker has some
NUM_CLIENTS = 6
BLOCK_TOKENS = EngineOptions().block_size
SALT = "Zk3-not-to-be-told"


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("workers")
    nodes = [{"name": "node-0", "executor": "predicted", "device": "a100"}]
    keys = [{"key": "all", "tenant": "a"}, {"key": "few", "tenant": "a", "requests_per_minute": NUM_FEW}]
    keys += [{"key": name, "tenant": name} for name in ("acme", "bolt")]
    tenants = {name: {"cache": "own"} for name in ("acme", "bolt")}
    cluster = Cluster.predicted(folder, gateway={"workers": 2}, nodes=nodes, keys=keys, tenants=tenants)
    with cluster.running():
        yield cluster


@pytest.fixture
def cluster(two_workers: Cluster) -> Iterator[Cluster]:
    wait_for("both workers", lambda: two_workers.status("gateway").get("num_ready") == 2)
    yield two_workers
    wait_for("both workers", lambda: two_workers.status("gateway").get("num_ready") == 2)
    two_workers.wait_idle()


def workers(cluster: Cluster) -> dict[int, psutil.Process]:
    """Processes of the workers, by pid."""
    return {process.pid: process for process in psutil.Process(cluster.pids()["gateway"]).children()}


@dataclass
class Stream:
    """An answer that comes token by token over a connection of its own."""

    num_tokens: int = 0
    is_whole: bool = False
    failure: str = ""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


async def follow(session: aiohttp.ClientSession, cluster: Cluster, stream: Stream, max_tokens: int = LONG) -> None:
    body = {"model": "chat", "prompt": "he hello", "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    try:
        async with session.post(f"{cluster.url}/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                stream.num_tokens += line.startswith(b"data: {")
                stream.is_whole = stream.is_whole or line == b"data: [DONE]\n"
    except (aiohttp.ClientError, OSError) as error:
        stream.failure = type(error).__name__


def owners(cluster: Cluster) -> dict[int, int]:
    """Which worker has the other end of a connection, by its port at this end."""
    port = cluster.config["gateway"]["port"]
    return {
        one.raddr.port: pid
        for pid, process in workers(cluster).items()
        for one in process.net_connections(kind="tcp")
        if one.laddr.port == port and one.raddr
    }


async def connect(cluster: Cluster, stack: AsyncExitStack) -> tuple[aiohttp.ClientSession, int]:
    """A connection that stays open, alone in its session; its port at this end."""
    sockets: list[socket.socket] = []

    def factory(address: aiohttp.AddrInfoType) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    connector = aiohttp.TCPConnector(limit=1, socket_factory=factory)
    session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120), headers=ALL)
    await stack.enter_async_context(session)
    async with session.get(f"{cluster.url}/v1/models") as answer:
        assert answer.status == 200, await answer.text()
    return session, sockets[-1].getsockname()[1]


async def connections_to_both(cluster: Cluster, stack: AsyncExitStack) -> dict[int, list[aiohttp.ClientSession]]:
    """Open connections by worker; each of the two has some. Whose they are takes a while to see, so no answer runs."""
    found: dict[int, list[aiohttp.ClientSession]] = {pid: [] for pid in workers(cluster)}
    while not all(found.values()):
        assert sum(map(len, found.values())) < MAX_CONNECTIONS, "one worker takes all connections"
        opened = [await connect(cluster, stack) for _ in range(NUM_STREAMS)]
        by_port = await asyncio.to_thread(owners, cluster)
        for session, local_port in opened:
            found[by_port[local_port]].append(session)
    return found


@asynccontextmanager
async def streams_on_both(cluster: Cluster) -> AsyncIterator[dict[int, list[Stream]]]:
    """Streams that are underway, by worker; each of the two has some."""
    async with AsyncExitStack() as stack:
        sessions = await connections_to_both(cluster, stack)
        found: dict[int, list[Stream]] = {pid: [Stream() for _ in of_one] for pid, of_one in sessions.items()}
        everything = [stream for streams in found.values() for stream in streams]
        try:
            for pid, streams in found.items():
                for session, stream in zip(sessions[pid], streams, strict=True):
                    stream.task = asyncio.create_task(follow(session, cluster, stream))
            async with asyncio.timeout(60):
                while not all(stream.num_tokens for stream in everything):  # noqa: ASYNC110 - they are counters
                    await asyncio.sleep(POLL_S)
            yield found
        finally:
            await asyncio.gather(*(stream.task for stream in everything if stream.task))


@dataclass
class Knocks:
    """New connections, one after the other."""

    num_answered: int = 0
    num_refused: int = 0


@asynccontextmanager
async def knocking(cluster: Cluster) -> AsyncIterator[Knocks]:
    """Somebody opens a connection again and again."""
    knocks, is_over = Knocks(), asyncio.Event()

    async def knock() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), headers=ALL) as session:
            while not is_over.is_set():
                try:
                    async with session.get(f"{cluster.url}/v1/models") as answer:
                        knocks.num_answered += answer.status == 200
                except aiohttp.ClientConnectorError:
                    knocks.num_refused += 1
                except aiohttp.ClientConnectionError:
                    pass  # whoever had taken the connection was killed
                await asyncio.sleep(POLL_S)

    task = asyncio.create_task(knock())
    try:
        yield knocks
    finally:
        is_over.set()
        await task


async def until_both_are_ready(cluster: Cluster) -> None:
    await asyncio.to_thread(wait_for, "both workers", lambda: cluster.status("gateway").get("num_ready") == 2)


async def test_both_serve_and_the_admin_port_puts_them_together(cluster: Cluster) -> None:
    counted = cluster.metric("gateway", "treadle_requests_total")
    async with streams_on_both(cluster) as found:
        status = cluster.status("gateway")
        assert [worker["worker"] for worker in status["workers"]] == [0, 1]
        assert status["inflight"] == sum(worker["inflight"] for worker in status["workers"])
        assert all(worker["inflight"] for worker in status["workers"])
        num_streams = sum(map(len, found.values()))

    def is_counted() -> bool:
        return cluster.metric("gateway", "treadle_requests_total") == counted + num_streams

    wait_for("the counts, behind the last bytes", is_counted)
    of_each = [cluster.metric("gateway", "treadle_requests_total", worker=str(worker)) for worker in range(2)]
    assert sum(of_each) == counted + num_streams
    assert all(of_each)
    assert cluster.metric("gateway", "treadle_gateway_workers_ready") == 2
    for path in ("/healthz", "/readyz"):
        assert cluster.get("gateway", path)[0] == 200
    assert cluster.treadle("status").returncode == 0


async def test_a_key_has_its_requests_a_minute_of_both_together(cluster: Cluster) -> None:
    body = {"model": "chat", "prompt": "he", "max_tokens": 1}
    statuses: list[list[int]] = []
    async with AsyncExitStack() as stack:
        sessions = [of_one[0] for of_one in (await connections_to_both(cluster, stack)).values()]
        for _ in range(NUM_FEW + 2):
            statuses.append([])
            for session in sessions:
                async with session.post(f"{cluster.url}/v1/completions", json=body, headers=FEW) as answer:
                    statuses[-1].append(answer.status)
    num_taken = sum(status == 200 for both in statuses for status in both)
    # one may wait for what the other has in advance; each may be one beyond, and one may have come since
    assert NUM_FEW - 1 <= num_taken <= NUM_FEW + 2 + 1, statuses
    assert statuses[-1] == [429, 429]


async def cached(session: aiohttp.ClientSession, cluster: Cluster, key: dict[str, str], salt: str | None) -> int:
    """Of a prompt of two whole blocks and a few tokens, those that were found."""
    prompt = [3 + number % 5 for number in range(2 * BLOCK_TOKENS + 3)]
    body = {"model": "chat", "prompt": prompt, "max_tokens": 1, "cache_salt": salt}
    async with session.post(f"{cluster.url}/v1/completions", json=body, headers=key) as answer:
        usage = (await answer.json())["usage"]
    found: int = usage["prompt_tokens_details"]["cached_tokens"]
    return found


async def test_a_prompt_is_found_by_its_own_tenant_and_salt_through_either_worker(cluster: Cluster) -> None:
    whose = [(key, salt) for key in (ALL, ACME, BOLT) for salt in (None, SALT)]
    async with AsyncExitStack() as stack:
        first, second = (of_one[0] for of_one in (await connections_to_both(cluster, stack)).values())
        assert [await cached(first, cluster, *one) for one in whose] == [0] * len(whose)
        assert [await cached(second, cluster, *one) for one in whose] == [2 * BLOCK_TOKENS] * len(whose)


async def test_no_word_of_a_salt_is_in_redis_or_in_a_log(cluster: Cluster) -> None:
    body = {"model": "chat", "prompt": "he", "max_tokens": LONG, "ignore_eos": True, "cache_salt": SALT}

    def payloads() -> list[bytes]:
        with cluster.redis() as redis:
            values = [redis.get(key) for key in redis.scan_iter("treadle:req:*")]
        return [value for value in values if isinstance(value, bytes)]

    async with aiohttp.ClientSession(headers=ACME) as session:
        asked = asyncio.create_task(session.post(f"{cluster.url}/v1/completions", json=body))
        (payload,) = await asyncio.to_thread(wait_for, "its payload", payloads)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    assert partition_of("acme", SALT).encode() in payload
    with cluster.redis() as redis:
        queued = repr(redis.xrange("treadle:queue"))
    assert not [one for one in [repr(payload), queued, *cluster.logs().values()] if SALT in one]


async def test_a_killed_worker_breaks_its_own_streams_and_another_stands_in_its_place(cluster: Cluster) -> None:
    before = set(workers(cluster))
    async with knocking(cluster) as knocks:
        async with streams_on_both(cluster) as found:
            (victim, broken), (survivor, whole) = found.items()
            assert not any(stream.is_whole for stream in [*broken, *whole]), "over before anything is done to it"
            os.kill(victim, signal.SIGKILL)
            killed_s = time.monotonic()
        assert {stream.failure for stream in broken} == {"ClientPayloadError"}, "told: the answer has no end"
        assert not any(stream.is_whole for stream in broken)
        assert [stream for stream in whole if stream.failure or not stream.is_whole] == []
        await until_both_are_ready(cluster)
        answered = knocks.num_answered
        await asyncio.to_thread(wait_for, "answers to newcomers", lambda: knocks.num_answered > answered)
    assert time.monotonic() - killed_s < 60
    assert knocks.num_refused == 0
    assert survivor in workers(cluster)
    assert len(workers(cluster)) == 2
    assert victim not in workers(cluster)
    assert before & set(workers(cluster)) == {survivor}
    assert cluster.metric("gateway", "treadle_gateway_worker_restarts_total") >= 1


async def test_workers_are_replaced_one_by_one_and_no_request_fails(cluster: Cluster) -> None:
    before, stop = set(workers(cluster)), asyncio.Event()
    asked: list[Stream] = []

    async def client() -> None:
        """The next request over the same connection as soon as one is answered."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120), headers=ALL) as session:
            while not stop.is_set():
                stream = Stream()
                asked.append(stream)
                await follow(session, cluster, stream, SHORT)

    async with knocking(cluster) as knocks:
        clients = [asyncio.create_task(client()) for _ in range(NUM_CLIENTS)]
        async with streams_on_both(cluster) as found:
            os.kill(cluster.pids()["gateway"], signal.SIGHUP)
        await asyncio.to_thread(wait_for, "new processes", lambda: not before & set(workers(cluster)))
        await until_both_are_ready(cluster)
        stop.set()
        await asyncio.gather(*clients)
    long = [stream for streams in found.values() for stream in streams]
    assert [stream for stream in [*long, *asked] if stream.failure or not stream.is_whole] == []
    assert len(asked) > NUM_CLIENTS
    assert knocks.num_refused == 0


async def test_workers_end_when_their_parent_is_killed(cluster: Cluster) -> None:
    pids = [cluster.pids()["gateway"], *workers(cluster)]
    cluster.kill("gateway")
    await asyncio.to_thread(wait_for, "the workers' ends", lambda: not any(runs(pid) for pid in pids))
    await asyncio.to_thread(cluster.up)
    assert cluster.get("gateway", "/readyz")[0] == 200
