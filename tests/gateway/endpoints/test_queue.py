"""What clients are told about the queue: ``/v1/queue``, and places in streams that wait."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

import aiohttp
import pytest

from shared.messages.requests.requests import QueueLine, QueuePlace
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import WAIT_S, saying
from tests.gateway.tiny import ids

TEXT = "/v1/completions"
ASKING = {
    "model": "tiny",
    "prompt": "x",
    "stream": True,
    "max_tokens": 40,
    "stream_options": {"include_queue": True},
}


async def test_the_queue_by_model_and_class(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    await gateway.queue.report(
        QueueLine("tiny", "interactive", 3, 2, 4.0, 6.5), QueueLine("base", "batch-1", 1, 0, math.inf, math.inf)
    )
    async with gateway.http.get("/v1/queue") as response:
        report = await response.json()
    assert 0.0 <= report.pop("age_s") < WAIT_S
    assert report == {
        "object": "queue",
        "is_stale": False,
        "data": [
            {
                "model": "base",
                "slo_class": "batch-1",
                "num_waiting": 1,
                "num_running": 0,
                "wait_s": None,
                "wait_p90_s": None,
            },
            {
                "model": "tiny",
                "slo_class": "interactive",
                "num_waiting": 3,
                "num_running": 2,
                "wait_s": 4.0,
                "wait_p90_s": 6.5,
            },
        ],
    }


async def test_before_the_queue_manager_is_heard_nothing_is_known(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/v1/queue") as response:
        assert await response.json() == {"object": "queue", "age_s": None, "is_stale": True, "data": []}


async def test_the_queue_is_shown_to_those_with_a_key(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "good", "tenant": "acme"}])
    await gateway.queue.report()
    async with gateway.http.get("/v1/queue") as response:
        assert response.status == 401
    async with gateway.http.get("/v1/queue", headers={"Authorization": "Bearer good"}) as response:
        assert (response.status, (await response.json())["data"]) == (200, [])


async def test_the_document_tells_of_the_queue_and_its_errors(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.get("/openapi.json") as response:
        paths = (await response.json())["paths"]
    assert set(paths["/v1/queue"]["get"]["responses"]) == {"200", "401", "500"}
    dropped = paths[TEXT]["post"]["responses"]["429"]
    assert set(dropped["headers"]) == {"Retry-After", "x-treadle-dropped-reason"}


# --- places ---------------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """An open stream, read event by event."""

    response: aiohttp.ClientResponse

    async def next(self) -> str:
        event = await asyncio.wait_for(self.response.content.readuntil(b"\n\n"), WAIT_S)
        return event.decode().removesuffix("\n\n")

    async def rest(self) -> list[str]:
        return (await asyncio.wait_for(self.response.text(), WAIT_S)).strip().split("\n\n")


async def asked(gateway: Gateway, body: dict[str, object] = ASKING) -> asyncio.Task[aiohttp.ClientResponse]:
    async def post() -> aiohttp.ClientResponse:
        return await gateway.http.post(TEXT, json=body)

    return asyncio.create_task(post())


async def test_a_stream_shows_its_place_until_its_first_token(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = await asked(gateway)
    submit = await gateway.queue.next_submit()
    assert submit.wants_place
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 3, 1.25, 2.0)])
    stream = Stream(await asyncio.wait_for(asking, WAIT_S))
    assert await stream.next() == ': queue {"num_ahead":3,"wait_s":1.25,"wait_p90_s":2.0}'
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 0, math.inf, math.inf)])
    assert await stream.next() == ': queue {"num_ahead":0,"wait_s":null,"wait_p90_s":null}'
    await gateway.queue.send(submit, 0, ids("ab"))
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 9, 9.0, 9.0)])
    await gateway.queue.send(submit, 2, ids("c"), "stop")
    rest = await stream.rest()
    assert not any(event.startswith(": queue") for event in rest)
    assert rest[-1] == "data: [DONE]"


async def test_nobody_is_shown_a_place_who_did_not_ask(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = await asked(gateway, ASKING | {"stream_options": {"include_usage": True}})
    submit = await gateway.queue.next_submit()
    assert not submit.wants_place
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 3, 1.25, 2.0)])
    await gateway.queue.send(submit, 0, ids("a"), "stop")
    rest = await Stream(await asyncio.wait_for(asking, WAIT_S)).rest()
    assert all(event.startswith("data: ") for event in rest)


async def test_of_several_prompts_the_place_is_that_of_the_first_to_start(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = await asked(gateway, ASKING | {"prompt": ["x", "y"]})
    first, second = await gateway.queue.next_submit(), await gateway.queue.next_submit()
    places = [QueuePlace(first.request_id, 7, 5.0, 8.0), QueuePlace(second.request_id, 2, 1.0, 1.5)]
    await gateway.queue.report(places=places)
    stream = Stream(await asyncio.wait_for(asking, WAIT_S))
    assert await stream.next() == ': queue {"num_ahead":2,"wait_s":1.0,"wait_p90_s":1.5}'
    await gateway.queue.send(second, 0, ids("b"), "stop")
    await gateway.queue.report(places=places[:1])  # the other prompt waits on, but the answer has begun
    await gateway.queue.send(first, 0, ids("a"), "stop")
    assert not any(event.startswith(":") for event in await stream.rest())


async def test_a_refusal_after_a_place_is_an_event(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = await asked(gateway)
    submit = await gateway.queue.next_submit()
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 3, 1.25, 2.0)])
    stream = Stream(await asyncio.wait_for(asking, WAIT_S))
    assert stream.response.status == 200
    await stream.next()
    await gateway.queue.reject(submit, wait_s=30.0, retry_after_s=3.0)
    (error,) = await stream.rest()
    assert '"code":"would_be_late"' in error


async def test_a_new_attempt_of_a_request_that_has_tokens_wants_no_place(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = await asked(gateway)
    first = await gateway.queue.next_submit()
    await gateway.queue.lose(first)
    second = await gateway.queue.next_submit()
    assert second.wants_place  # its client has nothing yet
    await gateway.queue.send(second, 0, ids("a"))
    await gateway.queue.lose(second)
    third = await gateway.queue.next_submit()
    assert not third.wants_place
    await gateway.queue.send(third, 1, ids("b"), "stop")
    assert (await Stream(await asyncio.wait_for(asking, WAIT_S)).rest())[-1] == "data: [DONE]"


async def test_openai_s_client_is_not_disturbed(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = asyncio.create_task(
        gateway.openai.completions.create(
            model="tiny", prompt="x", stream=True, extra_body={"stream_options": {"include_queue": True}}
        )
    )
    submit = await gateway.queue.next_submit()
    await gateway.queue.report(places=[QueuePlace(submit.request_id, 3, 1.25, 2.0)])
    stream = await asyncio.wait_for(asking, WAIT_S)
    await gateway.queue.send(submit, 0, ids("hello"), "stop")
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "hello"


async def test_places_are_for_streams(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    body = {"model": "tiny", "prompt": "x", "stream_options": {"include_queue": True}}
    async with gateway.http.post(TEXT, json=body) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "stream_options")


@pytest.mark.parametrize("flag", ["yes", 1])
async def test_the_wish_is_true_or_false(start_gateway: GatewayFactory, flag: object) -> None:
    gateway = await start_gateway(saying("a"))
    async with gateway.http.post(TEXT, json=ASKING | {"stream_options": {"include_queue": flag}}) as response:
        assert (await response.json())["error"]["param"] == "stream_options.include_queue"
