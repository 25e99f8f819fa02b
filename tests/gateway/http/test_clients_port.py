"""The clients' port, with raw sockets: what hostile and careless clients hold, and what they are told."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from gateway.http.clients_port import MAX_PIPELINED_BYTES
from gateway.http.connections import TimeOuts
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import saying, saying_each
from tests.gateway.tiny import ids
from tests.redis.waiting import until

SHORT = TimeOuts(header_s=0.05, idle_s=0.05, linger_s=0.05, grace_s=0.0)
KEY = b"sk-very-secret"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SMALL_BUFFER = 4096
LABELS = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}


@dataclass
class Client:
    """One raw connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, header, body."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await self.reader.readexactly(int(fields["content-length"])) if "content-length" in fields else b""
        return int(lines[0].split()[1]), fields, body

    async def rest_of_stream(self) -> bytes:
        """What comes until a chunk says that it is the last."""
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += await self.reader.read(1 << 20)
        return data

    async def rest(self) -> bytes:
        """What comes until the server closes; a reset is an end as well."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def connected(gateway: Gateway, receive_buffer: int | None = None) -> AsyncIterator[Client]:
    host, port = gateway.url.removeprefix("http://").split(":")
    raw = socket.socket()
    raw.setblocking(False)
    if receive_buffer is not None:  # before connecting: it decides what the other side may send ahead
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


def post(body: dict[str, Any], *fields: bytes) -> bytes:
    data = json.dumps(body).encode()
    head = [b"POST /v1/completions HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(data), *fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + data


def num(gateway: Gateway, state: str) -> float:
    return gateway.metric("treadle_connections", state=state)


def closed(gateway: Gateway, reason: str) -> float:
    return gateway.metric("treadle_closed_connections_total", reason=reason)


def becomes(value: Callable[[], float], wanted: float) -> Any:
    async def is_so() -> bool:
        return value() == wanted

    return until(is_so)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", HEALTH[:-2]])
async def test_who_sends_no_header_is_closed(start_gateway: GatewayFactory, sent: bytes) -> None:
    gateway = await start_gateway(timeouts=TimeOuts(header_s=0.05))
    async with connected(gateway) as client:
        await client.send(sent)
        assert await client.rest() == b""
    assert closed(gateway, "no_header") == 1
    assert num(gateway, "header") == 0


async def test_a_connection_without_a_next_request_is_closed(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(timeouts=TimeOuts(idle_s=0.05))
    async with connected(gateway) as client:
        await client.send(HEALTH)
        assert (await client.answer())[0] == 200
        await becomes(lambda: num(gateway, "idle"), 1)
        assert await client.rest() == b""
    assert closed(gateway, "no_request") == 1


async def test_half_of_a_next_header_is_closed_too(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(timeouts=TimeOuts(header_s=0.05))
    async with connected(gateway) as client:
        await client.send(HEALTH)
        await client.answer()
        await client.send(HEALTH[:20])
        assert await client.rest() == b""
    assert closed(gateway, "no_header") == 1


async def test_a_request_takes_as_long_as_it_takes(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(timeouts=SHORT)
    async with connected(gateway) as client:
        await client.send(post({"model": "tiny", "prompt": "x"}))
        submit = await gateway.queue.next_submit()
        async with connected(gateway) as silent:  # by its end, the other's time would have been over as well
            await silent.rest()
        assert num(gateway, "request") == 1
        await gateway.queue.send(submit, 0, ids("a"), "stop")
        assert (await client.answer())[0] == 200


async def test_a_newcomer_takes_the_place_of_the_oldest_idle_one(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 2, "max_connections": 2})
    async with connected(gateway) as oldest, connected(gateway) as second:
        for client in (oldest, second):
            await client.send(HEALTH)
            await client.answer()
        await becomes(lambda: num(gateway, "idle"), 2)
        async with connected(gateway) as newcomer:
            await newcomer.send(HEALTH)
            assert (await newcomer.answer())[0] == 200
            assert await oldest.rest() == b""
        await second.send(HEALTH)
        assert (await second.answer())[0] == 200
    assert closed(gateway, "crowded") == 1


async def test_where_nobody_gives_way_a_newcomer_is_told_so(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 1, "max_connections": 1})
    async with connected(gateway) as busy:
        await busy.send(post({"model": "tiny", "prompt": "x"}))
        await gateway.queue.next_submit()
        async with connected(gateway) as newcomer:
            await newcomer.send(HEALTH)
            status, fields, body = await newcomer.answer()
            assert (status, fields["retry-after"], fields["x-treadle-dropped-reason"]) == (503, "1", "saturated")
            assert json.loads(body)["error"]["code"] == "too_many_connections"
            assert await newcomer.rest() == b""
        assert num(gateway, "request") == 1
    await becomes(lambda: closed(gateway, "refused"), 1)


async def test_an_unread_refusal_is_torn_down(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(
        gateway={"max_inflight": 1, "max_connections": 1}, timeouts=TimeOuts(linger_s=0.05, grace_s=100.0)
    )
    async with connected(gateway):
        await becomes(lambda: num(gateway, "header"), 1)
        async with connected(gateway):  # neither reads nor closes
            await becomes(lambda: closed(gateway, "refused"), 1)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + KEY + b"\x01\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + KEY + b"\x00x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuth\x7forization: " + KEY + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nNo colon, " + KEY + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nAuthorization: " + KEY * 1000 + b"\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, KEY) for n in range(200)) + b"\r\n",
        b"GET /" + KEY + b" HTTP/9.9\r\nHost: x\r\n\r\n",
        b"G\x01T /" + KEY + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + KEY * 1000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + KEY,
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + KEY,
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + KEY + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + KEY + b"\r\n",
    ],
)
async def test_bad_http_is_a_400_and_nothing_of_it_is_repeated(
    start_gateway: GatewayFactory, sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    gateway = await start_gateway(timeouts=SHORT)
    with structlog.testing.capture_logs() as logs:
        async with connected(gateway) as client:
            await client.send(sent)
            status, fields, body = await client.answer()
            assert await client.rest() == b""
        await becomes(lambda: num(gateway, "request"), 0)
    assert (status, fields["content-type"]) == (400, "application/json; charset=utf-8")
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "bad_http")
    assert len(fields["x-treadle-request-id"]) == 32
    seen = f"{fields}{body!r}{logs}{caplog.text}{capfd.readouterr()}"
    assert KEY.decode()[:8] not in seen
    assert [event["request_id"] for event in logs if event["event"] == "bad_http"] == [fields["x-treadle-request-id"]]


async def test_the_answer_to_bad_http_arrives_though_its_client_goes_on_sending(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(timeouts=TimeOuts(linger_s=0.5))
    async with connected(gateway) as client:
        await client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
        status, _, _ = await client.answer()
        assert status == 400
        await client.send(b"x" * 100_000)
    await becomes(lambda: closed(gateway, "bad_http"), 1)


async def test_who_sends_ahead_without_end_is_closed(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with connected(gateway) as client:
        await client.send(post({"model": "tiny", "prompt": "x"}))
        submit = await gateway.queue.next_submit()
        await client.send(HEALTH)
        client.writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X: x\r\n" * (2 * MAX_PIPELINED_BYTES // 6))
        assert await client.rest() == b""
    assert closed(gateway, "pipelined") == 1
    assert await gateway.queue.next_cancel() == submit.request_id


@pytest.mark.parametrize("stream", [False, True])
async def test_a_next_request_may_come_as_soon_as_the_answer_is_written(
    start_gateway: GatewayFactory, stream: bool
) -> None:
    gateway = await start_gateway(saying("a"))
    request = post({"model": "tiny", "prompt": "x", "stream": stream})
    large = post({"model": "tiny", "prompt": "x" * 2 * MAX_PIPELINED_BYTES})
    async with connected(gateway) as client:
        for _ in range(20):
            client.writer.write(request)
            status, fields, _ = await client.answer()
            assert status == 200
            if "content-length" not in fields:
                await client.rest_of_stream()
            client.writer.write(large)
            assert (await client.answer())[0] == 400
    assert closed(gateway, "pipelined") == 0


async def test_a_few_requests_sent_ahead_are_answered_in_order(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    async with connected(gateway) as client:
        await client.send(post({"model": "tiny", "prompt": "x"}) + HEALTH + HEALTH)
        assert [(await client.answer())[2][:3] for _ in range(3)] == [b'{"i', b"ok\n", b"ok\n"]


NUM_PROMPTS = 2
LARGE = {"model": "tiny", "prompt": ["x"] * NUM_PROMPTS, "n": 16, "max_tokens": 60, "logprobs": 20}
"""Three hundred kilobytes of answer, of which the kernel takes little off the gateway's hands: see `SMALL_BUFFER`."""


async def test_a_whole_answer_keeps_its_slots_until_it_is_read(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying_each(*["a" * 59] * 16), send_buffer=SMALL_BUFFER)
    async with connected(gateway, SMALL_BUFFER) as client:
        await client.send(post(LARGE))
        for _ in range(NUM_PROMPTS):
            await gateway.queue.next_finish()
        assert gateway.metric("treadle_requests_total", outcome="ok", **LABELS) == 1
        assert gateway.metric("treadle_inflight_requests") == NUM_PROMPTS
        assert gateway.metric("treadle_inflight_bytes") > NUM_PROMPTS * 1024
        status, _, body = await client.answer()
        assert (status, len(json.loads(body)["choices"])) == (200, 16 * NUM_PROMPTS)
        await becomes(lambda: gateway.metric("treadle_inflight_requests"), 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_not_read_is_given_up(start_gateway: GatewayFactory, stream: bool) -> None:
    gateway = await start_gateway(
        saying_each(*["a" * 59] * 16), send_buffer=SMALL_BUFFER, timeouts=TimeOuts(write_s=0.05)
    )
    async with connected(gateway, SMALL_BUFFER) as client:
        await client.send(post({**LARGE, "stream": stream}))
        await becomes(lambda: closed(gateway, "unread"), 1)
        assert gateway.metric("treadle_inflight_requests") == 0


async def test_the_end_of_a_stream_keeps_its_slot_until_it_is_read(start_gateway: GatewayFactory) -> None:
    """Forty kilobytes: less than a connection's buffer, so nobody waits for it while it is sent."""
    gateway = await start_gateway(saying_each(*["a" * 59] * 4), send_buffer=SMALL_BUFFER)
    async with connected(gateway, SMALL_BUFFER) as client:
        await client.send(post({**LARGE, "prompt": "x", "n": 4, "stream": True}))
        await gateway.queue.next_finish()
        for _ in range(10):
            await asyncio.sleep(0)
        assert gateway.metric("treadle_requests_total", outcome="ok", **LABELS) == 1
        assert gateway.metric("treadle_inflight_requests") == 1
        assert (await client.rest_of_stream()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        await becomes(lambda: gateway.metric("treadle_inflight_requests"), 0)


async def test_a_body_whose_framing_breaks_on_the_way_is_a_400(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    with structlog.testing.capture_logs() as logs:
        async with connected(gateway) as client:
            await client.send(
                b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
            )
            await becomes(lambda: gateway.metric("treadle_inflight_requests"), 1)
            await client.send(KEY + b"\r\n")
            status, _, body = await client.answer()
            assert await client.rest() == b""
    assert (status, json.loads(body)["error"]["code"]) == (400, "bad_http")
    assert KEY.decode()[:8] not in f"{body!r}{logs}"
    assert gateway.metric("treadle_inflight_requests") == 0
