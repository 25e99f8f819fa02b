"""Several tenants at one gateway: what each may hold, and what it hears of the others."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from shared.messages.requests.requests import QueueLine, QueuePlace, QueueStatus, TenantLine
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import WAIT_S, saying

TEXT = "/v1/completions"
BODY = {"model": "tiny", "prompt": "x"}
KEYS = [
    {"key": "f1", "tenant": "flood"},
    {"key": "f2", "tenant": "flood", "max_inflight": 2},
    {"key": "m1", "tenant": "modest"},
]
JSON = {"Content-Type": "application/json"}
FLOOD, LIMITED, MODEST = ({"Authorization": f"Bearer {key}"} for key in ("f1", "f2", "m1"))


async def hold(sent: AsyncExitStack, gateway: Gateway, headers: dict[str, str], num: int) -> None:
    """Requests that wait for their answer."""
    for _ in range(num):
        await sent.enter_async_context(sending(gateway.http.post(TEXT, json=BODY, headers=headers)))
        await gateway.queue.next_submit()


async def test_a_tenant_that_floods_a_gateway_leaves_room_for_another(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 32}, keys=KEYS)
    async with AsyncExitStack() as sent:
        await hold(sent, gateway, FLOOD, 30)
        for _ in range(2):  # whoever asks again is not nearer
            status, error, headers = await refused(gateway, TEXT, BODY, **FLOOD)
            assert (status, error["code"], error["type"]) == (429, "tenant_saturated", "rate_limit_error")
            assert error["message"] == (
                "this tenant's requests in flight are at its share (16 of 32), and what is free is kept for other "
                "tenants"
            )
            assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("1", "saturated")
        await hold(sent, gateway, MODEST, 2)
        status, error, _ = await refused(gateway, TEXT, BODY, **MODEST)
        assert (status, error["code"]) == (429, "saturated")
        assert error["message"] == "32 requests are in flight, which is the limit"


async def test_bytes_are_shared_too(start_gateway: GatewayFactory) -> None:
    # a body of 16 KiB, with all that it may need, fits beside the reserve, which is a sixteenth: 64 KiB
    gateway = await start_gateway(gateway={"max_body_bytes": 16384, "max_inflight_bytes": 1 << 20}, keys=KEYS)
    body = json.dumps(BODY).encode() + b" " * 16_000
    each = len(body) + 1024 + 3
    num = ((1 << 20) - (1 << 16)) // each
    async with AsyncExitStack() as sent:
        for _ in range(num):
            await sent.enter_async_context(sending(gateway.http.post(TEXT, data=body, headers=FLOOD)))
            await gateway.queue.next_submit()
        status, error, _ = await refused(gateway, TEXT, body, **FLOOD)
        assert (status, error["code"]) == (429, "tenant_saturated")
        assert "share (524288 of 1048576)" in error["message"]
        await sent.enter_async_context(sending(gateway.http.post(TEXT, data=body, headers=MODEST)))
        assert (await gateway.queue.next_submit()).tenant == "modest"


async def test_one_tenant_needs_no_room_for_others(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 32}, keys=KEYS[:2])
    async with AsyncExitStack() as sent:
        await hold(sent, gateway, FLOOD, 32)
        status, error, _ = await refused(gateway, TEXT, BODY, **FLOOD)
        assert (status, error["code"]) == (429, "saturated")


async def test_a_key_may_have_a_limit_of_its_own(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    async with AsyncExitStack() as sent:
        await hold(sent, gateway, LIMITED, 2)
        status, error, headers = await refused(gateway, TEXT, BODY, **LIMITED)
        assert (status, error["code"], error["type"]) == (429, "rate_limit_exceeded", "rate_limit_error")
        assert error["message"] == "this API key may have 2 requests in flight at a time, and has as many"
        assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("1", "saturated")
        await hold(sent, gateway, FLOOD, 1)  # another key of the same tenant


async def test_prompts_count_one_by_one_for_a_key(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"), keys=KEYS)
    assert (await refused(gateway, TEXT, BODY | {"prompt": ["x"] * 3}, **LIMITED))[1]["code"] == "rate_limit_exceeded"
    async with gateway.http.post(TEXT, json=BODY | {"prompt": ["x"] * 2}, headers=LIMITED) as response:
        assert response.status == 200


async def test_more_prompts_than_can_ever_be_held_are_told_so(start_gateway: GatewayFactory) -> None:
    """Else a batch would send them again and again, until its window is over."""
    gateway = await start_gateway(saying("a"), gateway={"max_inflight": 32}, keys=KEYS)
    status, error, _ = await refused(gateway, TEXT, BODY | {"prompt": ["x"] * 31}, **FLOOD)
    assert (status, error["code"], error["param"]) == (400, "invalid_value", "prompt")
    assert error["message"] == "these are 31 requests; at most 30 are taken at a time: send fewer"
    async with gateway.http.post(TEXT, json=BODY | {"prompt": ["x"] * 30}, headers=FLOOD) as response:
        assert response.status == 200


async def test_a_key_s_limit_is_told_before_the_body_is_read(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    async with AsyncExitStack() as sent:
        await hold(sent, gateway, LIMITED, 2)
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer f2\r\nContent-Length: 9\r\n\r\n"
        )
        assert await asyncio.wait_for(reader.readline(), 5.0) == b"HTTP/1.1 429 Too Many Requests\r\n"
        writer.close()


# --- what they hear -------------------------------------------------------------------------------------------------

ALL = QueueLine("tiny", "interactive", 9, 4, 5.0, 7.0)
OF_FLOOD = QueueLine("tiny", "interactive", 8, 3, 5.0, 7.0)
OF_MODEST = QueueLine("tiny", "interactive", 1, 1, 0.5, 0.75)
SECRET = QueueLine("base", "batch-1", 2, 0, 1.0, 2.0)


async def seen(gateway: Gateway, headers: dict[str, str]) -> list[dict[str, Any]]:
    async with gateway.http.get("/v1/queue", headers=headers) as response:
        data: list[dict[str, Any]] = (await response.json())["data"]
        return data


async def test_a_tenant_sees_its_own_requests_and_no_others(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    lines = [("flood", OF_FLOOD), ("modest", OF_MODEST), ("flood", SECRET)]
    await gateway.queue.tell(QueueStatus(lines=[ALL, SECRET], tenant_lines=[TenantLine(*one) for one in lines]))
    assert await seen(gateway, MODEST) == [
        {
            "model": "tiny",
            "slo_class": "interactive",
            "num_waiting": 1,
            "num_running": 1,
            "wait_s": 0.5,
            "wait_p90_s": 0.75,
        }
    ]
    assert [(line["model"], line["num_waiting"]) for line in await seen(gateway, FLOOD)] == [("base", 2), ("tiny", 8)]


async def test_a_tenant_that_has_nothing_in_the_queue_sees_nothing(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    await gateway.queue.tell(QueueStatus(lines=[ALL], tenant_lines=[TenantLine("flood", ALL)]))
    assert await seen(gateway, MODEST) == []


async def test_a_place_counts_those_of_the_same_tenant(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    body = BODY | {"stream": True, "stream_options": {"include_queue": True}}
    asking = asyncio.create_task(_post(gateway, body))
    submit = await gateway.queue.next_submit()
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 700, 1.25, 2.0, 697)])
    response = await asyncio.wait_for(asking, WAIT_S)
    assert await response.content.readline() == b': queue {"num_ahead":3,"wait_s":1.25,"wait_p90_s":2.0}\n'
    response.close()


async def _post(gateway: Gateway, body: dict[str, Any]) -> aiohttp.ClientResponse:
    return await gateway.http.post(TEXT, json=body, headers=MODEST)


async def test_long_texts_of_a_tenant_wait_behind_its_own(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    num_crowd, text = 40, "once upon a time " * 8_000

    async def tokenised(headers: dict[str, str], prompt: str) -> None:
        async with gateway.http.post("/tokenize", json={"model": "tiny", "prompt": prompt}, headers=headers) as answer:
            assert answer.status == 200
            await answer.read()

    crowd = [asyncio.create_task(tokenised(FLOOD, text)) for _ in range(num_crowd)]
    await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
    await tokenised(MODEST, text[:4096])
    assert sum(one.done() for one in crowd) < num_crowd // 2
    await asyncio.gather(*crowd)


async def test_long_bodies_of_a_tenant_wait_behind_its_own(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=KEYS)
    num_crowd, parts = 30, [{"type": "text", "text": "x"}] * 8
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": parts}] * 400}).encode()

    async def refused_as_too_long() -> None:
        async with gateway.http.post("/v1/chat/completions", data=body, headers=FLOOD | JSON) as answer:
            assert answer.status == 400
            await answer.read()

    crowd = [asyncio.create_task(refused_as_too_long()) for _ in range(num_crowd)]
    await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
    async with gateway.http.post("/tokenize", json={"model": "tiny", "prompt": "ab " * 7000}, headers=MODEST) as answer:
        assert answer.status == 200
    assert sum(one.done() for one in crowd) < num_crowd // 2
    await asyncio.gather(*crowd)
