"""What happens to a request when clients leave and nodes die, over a real socket."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import aiohttp

from shared.messages.requests.payload import Output
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import WAIT_S, saying
from tests.gateway.tiny import ids

TEXT = "/v1/completions"
STREAM = {"model": "tiny", "prompt": "x", "stream": True, "max_tokens": 40}


async def texts(response: aiohttp.ClientResponse) -> str:
    """The text of a whole stream."""
    events = (await asyncio.wait_for(response.text(), WAIT_S)).strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


async def drained(gateway: Gateway) -> None:
    """The handler is through, and nothing of its request is left."""
    await gateway.dispatcher.drain()
    assert gateway.dispatcher.num_inflight == 0
    assert gateway.queue.payloads == {}


async def test_a_client_that_leaves_before_the_first_token_cancels(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=STREAM)):
        submit = await gateway.queue.next_submit()
    assert await gateway.queue.next_cancel() == submit.request_id
    await drained(gateway)


async def test_a_client_that_leaves_in_the_middle_cancels(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with aiohttp.ClientSession(gateway.url) as client:
        post = asyncio.create_task(_post(client))
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("abc"))
        response = await asyncio.wait_for(post, WAIT_S)
        assert b'"text":"abc"' in await response.content.readuntil(b"\n\n")
        response.close()
    assert await gateway.queue.next_cancel() == submit.request_id
    await drained(gateway)


async def _post(client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    return await client.post(TEXT, json=STREAM)


async def test_a_stream_goes_on_after_its_node_is_lost(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    answer = "a 🧵 of 繊維"
    tokens = ids(answer)
    async with aiohttp.ClientSession(gateway.url) as client:
        post = asyncio.create_task(_post(client))
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, tokens[:4])  # in the middle of a character
        response = await asyncio.wait_for(post, WAIT_S)
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        assert (second.request_id, second.attempt) == (first.request_id, 1)
        assert gateway.queue.payloads[second.request_id].outputs == [Output(tokens[:4])]
        await gateway.queue.send(first, 4, ids("GHOST"))  # the lost node was only slow
        await gateway.queue.send(second, 4, tokens[4:7])
        await gateway.queue.send(second, 4, tokens[4:9])  # some of it twice
        await gateway.queue.lose(second)
        third = await gateway.queue.next_submit()
        await gateway.queue.send(third, 9, tokens[9:], "stop")
        assert await texts(response) == answer
    assert await gateway.queue.next_finish() == first.request_id
    await drained(gateway)


async def test_a_gap_is_repaired_by_another_attempt(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=STREAM | {"stream": False})) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("ab"))
        await gateway.queue.send(first, 3, ids("d"))
        second = await gateway.queue.next_submit()
        await gateway.queue.send(second, 2, ids("cd"), "stop")
        assert (await answer())["choices"][0]["text"] == "abcd"


async def test_many_streams_at_once_keep_apart(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(lambda payload: saying(bytes(payload.prompt_token_ids).decode() * 5)(payload))

    async def ask(text: str) -> str:
        stream = await gateway.openai.completions.create(model="tiny", prompt=ids(text), max_tokens=40, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    names = [f"n{number}" for number in range(20)]
    assert await asyncio.gather(*map(ask, names)) == [name * 5 for name in names]
    await drained(gateway)


async def test_a_request_with_which_engines_die_is_ended_by_name(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=STREAM)) as answer:
        first = await gateway.queue.next_submit()
        assert gateway.queue.payloads[first.request_id].num_crashes == 0
        await gateway.queue.crash(first)
        second = await gateway.queue.next_submit()
        assert gateway.queue.payloads[second.request_id].num_crashes == 1, "a suspect"
        await gateway.queue.crash(second)
        assert (await answer())["error"] == {
            "message": f"request {first.request_id} crashed the engine that ran it twice and will not be tried again",
            "type": "server_error",
            "param": None,
            "code": "engine_crashed",
        }
    assert await gateway.queue.next_cancel() == first.request_id
    await drained(gateway)


async def test_a_gateway_that_is_asked_to_stop_lets_its_streams_end(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"drain_s": WAIT_S})
    async with aiohttp.ClientSession(gateway.url) as client:
        post = asyncio.create_task(_post(client))
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("ab"))
        response = await asyncio.wait_for(post, WAIT_S)
        stopping = asyncio.create_task(gateway.stop())
        while await _listens(gateway):
            assert not stopping.done()
        await gateway.queue.send(submit, 2, ids("cd"), "stop")
        assert await texts(response) == "abcd"
        await asyncio.wait_for(stopping, WAIT_S)


async def test_who_outlasts_the_drain_is_told_and_cancelled(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"drain_s": 0.01})
    async with aiohttp.ClientSession(gateway.url) as client:
        post = asyncio.create_task(_post(client))
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, ids("ab"))
        response = await asyncio.wait_for(post, WAIT_S)
        waiting = asyncio.create_task(_post(client))
        other = await gateway.queue.next_submit()
        await asyncio.wait_for(gateway.stop(), WAIT_S)
        assert {await gateway.queue.next_cancel() for _ in range(2)} == {submit.request_id, other.request_id}
        *_, last = (await _rest(response)).decode().strip().split("\n\n")
        stopping = {
            "message": "the gateway is shutting down; ask again",
            "type": "server_error",
            "param": None,
            "code": "gateway_stopping",
        }
        assert json.loads(last.removeprefix("data: ")) == {"error": stopping}
        async with await waiting as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            assert (await refused.json())["error"] == stopping
    await drained(gateway)


async def test_who_comes_when_the_drain_is_over_is_told_the_same(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    gateway.dispatcher.stop()
    async with gateway.http.post(TEXT, json=STREAM) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (503, "gateway_stopping")
    assert gateway.queue.submits.empty()


async def _listens(gateway: Gateway) -> bool:
    try:
        async with gateway.http.get("/healthz"):
            return True
    except aiohttp.ClientConnectionError:
        return False


async def _rest(response: aiohttp.ClientResponse) -> bytes:
    """What a client still gets of an answer that is cut off."""
    rest = b""
    async with response:
        with suppress(aiohttp.ClientPayloadError):
            async for piece in response.content.iter_any():
                rest += piece
    return rest
