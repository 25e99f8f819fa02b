"""Responses in the background by OpenAI's client, over real sockets and a real Redis; the test plays the nodes."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, RateLimitError
from redis.asyncio import Redis

from gateway.kept.background import MAX_OF_TENANT, MAX_REQUEST_BYTES
from shared.bus import streams
from shared.messages.requests.requests import Submit
from shared.service.background.tasks import cancel_all
from tests.gateway.conftest import SIGN_S, Gateway, GatewayFactory
from tests.gateway.endpoints.background.waiting import begun, ended, events_in, events_of, in_status, until
from tests.gateway.memory_queue import Answer, saying, saying_each

KEEPS = {"keep_responses_s": 600}

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(redis: Redis, start_gateway: GatewayFactory) -> Starter:
    """A gateway that keeps answers."""

    async def start(answer: Answer | None = None, **options: Any) -> Gateway:
        return await start_gateway(answer, redis=redis, **({"gateway": KEEPS} | options))

    return start


async def num_open(redis: Redis) -> int:
    return int(await redis.hlen(streams.BACKGROUND))


async def gone(redis: Redis) -> bool | None:
    """Nothing is left of any that has not ended."""
    return True if not await num_open(redis) and not await redis.keys(streams.background("*")) else None


async def say(gateway: Gateway, submit: Submit, text: str, index: int = 0, *, is_end: bool = False) -> None:
    tokens = [*text.encode(), *(gateway.queue.payloads[submit.request_id].sampling.stop_token_ids if is_end else [])]
    await gateway.queue.send(submit, index, tokens, "stop" if is_end else "")


async def test_it_is_answered_at_once_and_found_when_it_has_ended(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))
    asked = await gateway.openai.responses.create(model="tiny", input="hi")
    queued = await begun(gateway)
    assert (queued.status, queued.background, queued.output) == ("queued", True, [])
    answer = await ended(gateway, queued.id)
    assert (answer.status, answer.output_text, answer.background) == ("completed", "Hello!", True)
    assert answer.usage == asked.usage
    assert (answer.id, answer.created_at) == (queued.id, queued.created_at)
    again = await gateway.openai.responses.create(model="tiny", input="more", previous_response_id=queued.id)
    assert again.output_text == "Hello!"
    assert await until(lambda: gone(redis))
    labels = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}
    assert gateway.metric("treadle_requests_total", **labels, outcome="ok") == 3
    assert gateway.metric("treadle_output_tokens_total", **labels) == 21


async def test_it_is_queued_until_its_first_token_and_then_in_progress(start: Starter) -> None:
    gateway = await start()
    queued = await begun(gateway)
    submit = await gateway.queue.next_submit()
    assert (await gateway.openai.responses.retrieve(queued.id)).status == "queued"
    await say(gateway, submit, "Hel")
    assert (await in_status(gateway, queued.id, "in_progress")).output == []
    with pytest.raises(BadRequestError) as refusal:
        await gateway.openai.responses.create(model="tiny", input="more", previous_response_id=queued.id)
    assert (refusal.value.code, refusal.value.param) == ("response_not_ended", "previous_response_id")
    with pytest.raises(BadRequestError, match="has not ended yet"):
        await gateway.openai.responses.input_items.list(queued.id)
    await say(gateway, submit, "lo!", 3, is_end=True)
    assert (await ended(gateway, queued.id)).output_text == "Hello!"
    items = await gateway.openai.responses.input_items.list(queued.id)
    assert [part.text for item in items.data for part in getattr(item, "content", [])] == ["hi"]


async def test_its_stream_is_read_from_any_event_on_as_often_as_asked(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    body = {"model": "tiny", "input": "hi", "background": True, "stream": True}
    async with gateway.http.post("/v1/responses", json=body) as answer:
        events = events_in(await answer.text())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "Hello!"
    response_id = events[0]["response"]["id"]
    assert await events_of(gateway, response_id) == events
    for after in (0, 4, len(events) - 2, len(events) - 1, 10**6):
        assert await events_of(gateway, response_id, after) == events[after + 1 :]


async def test_openai_s_client_resumes_a_stream(start: Starter) -> None:
    gateway = await start()
    seen: list[Any] = []
    stream = await gateway.openai.responses.create(model="tiny", input="hi", background=True, stream=True)
    submit = await gateway.queue.next_submit()
    await say(gateway, submit, "Hel")
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    await say(gateway, submit, "lo!", 3, is_end=True)
    response_id, last = seen[0].response.id, seen[-1].sequence_number
    rest = await gateway.openai.responses.retrieve(response_id, stream=True, starting_after=last)
    seen += [event async for event in rest]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.completed"
    assert seen[-1].response.output_text == "Hello!"


async def test_one_is_cancelled(start: Starter, redis: Redis) -> None:
    gateway = await start()
    queued = await begun(gateway)
    submit = await gateway.queue.next_submit()
    await say(gateway, submit, "Hel")
    await in_status(gateway, queued.id, "in_progress")
    cancelled = await gateway.openai.responses.cancel(queued.id)
    assert cancelled.status == "cancelled"
    assert await gateway.queue.next_cancel() == submit.request_id
    assert (await gateway.openai.responses.retrieve(queued.id)).status == "cancelled"
    assert (await gateway.openai.responses.cancel(queued.id)).status == "cancelled", "done twice it is done once"
    events = await events_of(gateway, queued.id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.cancelled"
    assert await until(lambda: gone(redis))
    labels = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}
    assert gateway.metric("treadle_requests_total", **labels, outcome="cancelled") == 1


async def test_only_what_is_in_the_background_is_cancelled_or_streamed_again(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    asked = await gateway.openai.responses.create(model="tiny", input="hi")
    for refused in (gateway.openai.responses.cancel(asked.id), events_of_client(gateway, asked.id)):
        with pytest.raises(BadRequestError) as refusal:
            await refused
        assert refusal.value.code == "response_not_in_background"
    with pytest.raises(NotFoundError):
        await gateway.openai.responses.cancel("resp_none")


async def events_of_client(gateway: Gateway, response_id: str) -> None:
    await gateway.openai.responses.retrieve(response_id, stream=True)


async def test_one_is_removed_before_it_has_ended(start: Starter, redis: Redis) -> None:
    gateway = await start()
    queued = await begun(gateway)
    submit = await gateway.queue.next_submit()
    await gateway.openai.responses.delete(queued.id)
    with pytest.raises(NotFoundError):
        await gateway.openai.responses.retrieve(queued.id)
    assert await gateway.queue.next_cancel() == submit.request_id
    assert await until(lambda: gone(redis))
    assert not await redis.keys(streams.response_log("*"))


async def test_what_goes_wrong_is_kept(start: Starter) -> None:
    gateway = await start()
    for text in ("", "Hel"):
        queued = await begun(gateway)
        submit = await gateway.queue.next_submit()
        if text:
            await say(gateway, submit, text)
            await in_status(gateway, queued.id, "in_progress")
        await gateway.queue.send(submit, len(text), [], "error")
        answer = await ended(gateway, queued.id)
        assert answer.status == "failed"
        assert answer.error is not None
        assert answer.error.model_dump()["code"] == "generation_failed"
        assert answer.output_text == text
        events = await events_of(gateway, queued.id)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]


async def test_an_answer_that_its_limit_cut_is_incomplete(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    answer = await ended(gateway, (await begun(gateway, max_output_tokens=3)).id)
    assert (answer.status, answer.output_text) == ("incomplete", "Hel")


async def test_a_key_s_requests_at_a_time_count_those_in_the_background(start: Starter) -> None:
    key = {"key": "key-of-one-0123456789", "tenant": "one", "max_inflight": 1}
    gateway = await start(keys=[key], key=key["key"])
    queued = await begun(gateway)
    submit = await gateway.queue.next_submit()
    with pytest.raises(RateLimitError) as refusal:
        await begun(gateway)
    assert refusal.value.code == "rate_limit_exceeded"
    await say(gateway, submit, "Hello!", is_end=True)
    assert (await ended(gateway, queued.id)).output_text == "Hello!"

    async def again() -> bool | None:
        try:
            await begun(gateway)
        except RateLimitError:
            return None
        return True

    assert await until(again), "its slot comes back with its end"


async def test_a_tenant_has_so_many_in_the_background(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))

    async def live() -> None:
        while True:
            await redis.hincrby(streams.FOLLOWERS, "other", 1)
            await asyncio.sleep(SIGN_S / 4)

    others: dict[Any, Any] = {f"resp_{number}": "other default" for number in range(MAX_OF_TENANT)}
    await redis.hset(streams.FOLLOWERS, "other", "0")
    living = asyncio.create_task(live())
    try:
        await redis.hset(streams.BACKGROUND, mapping=others)
        with pytest.raises(RateLimitError, match="256 responses of this tenant"):
            await begun(gateway)
        await redis.hset(streams.BACKGROUND, mapping=dict.fromkeys(others, "other another"))
        assert (await ended(gateway, (await begun(gateway)).id)).status == "completed"
    finally:
        await cancel_all([living])


async def test_another_tenant_finds_nothing(start: Starter) -> None:
    keys = [{"key": f"key-of-{name}-0123456789", "tenant": name} for name in ("one", "two")]
    gateway = await start(keys=keys, key=keys[0]["key"])
    queued = await begun(gateway)
    other = gateway.openai.with_options(api_key=keys[1]["key"])
    for refused in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
        with pytest.raises(NotFoundError):
            await refused(queued.id)
    assert (await gateway.openai.responses.retrieve(queued.id)).status == "queued"


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"store": False}, "background", "'store' may not be false"),
        ({"stream": True, "stream_options": {"include_queue": True}}, "stream_options.include_queue", "background"),
    ],
)
async def test_what_is_inconsistent_is_refused_in_words(
    start: Starter, fields: dict[str, Any], param: str, says: str
) -> None:
    gateway = await start(saying("Hello!"))
    body = {"model": "tiny", "input": "hi", "background": True} | fields
    async with gateway.http.post("/v1/responses", json=body) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert says in error["message"]


async def test_without_storage_there_is_no_background(start: Starter) -> None:
    gateway = await start(saying("Hello!"), gateway={})
    with pytest.raises(BadRequestError, match="keep_responses_s") as refusal:
        await begun(gateway)
    assert refusal.value.param == "background"
    assert (await begun(gateway, background=False)).background is False


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"starting_after": "3"}, "starting_after"),
        ({"stream": "true", "starting_after": "x"}, "starting_after"),
        ({"stream": "yes"}, "stream"),
        ({"includes": "a"}, "includes"),
    ],
)
async def test_a_query_is_checked(start: Starter, query: dict[str, str], param: str) -> None:
    gateway = await start(saying("Hello!"))
    answer = await ended(gateway, (await begun(gateway)).id)
    async with gateway.http.get(f"/v1/responses/{answer.id}", params=query) as refused:
        assert (refused.status, (await refused.json())["error"]["param"]) == (400, param)


async def test_logprobs_come_with_it(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    fields: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    asked = await begun(gateway, background=False, **fields)
    answer = await ended(gateway, (await begun(gateway, **fields)).id)
    [message], [other] = answer.output, asked.output
    assert message.model_dump(exclude={"id"}) == other.model_dump(exclude={"id"})


async def test_a_compressed_body_goes_on_as_well(start: Starter) -> None:
    one = await start(name="one")
    body = gzip.compress(json.dumps({"model": "tiny", "input": "hi", "background": True}).encode())
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    async with one.http.post("/v1/responses", data=body, headers=headers) as answer:
        queued = await answer.json()
    await one.queue.next_submit()
    two = await start(saying("Hello!"), name="two")
    await one.stop()
    assert (await ended(two, queued["id"])).output_text == "Hello!"


async def test_a_request_that_is_too_large_to_be_kept_is_refused(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))
    secret = {"type": "reasoning", "summary": [], "encrypted_content": "x" * MAX_REQUEST_BYTES}
    items: Any = [secret, {"role": "user", "content": "a"}]  # which no model reads
    with pytest.raises(BadRequestError) as refusal:
        await begun(gateway, input=items)
    assert refusal.value.code == "request_too_large", refusal.value.message
    assert (await begun(gateway, input=items, background=False)).output_text == "Hello!"
    assert not await num_open(redis)


async def test_a_full_redis_takes_none(start: Starter, redis: Redis) -> None:
    gateway = await start(saying("Hello!"))
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(RateLimitError) as refusal:
            await begun(gateway)
    finally:
        await redis.config_set("maxmemory", "0")
    assert refusal.value.code == "no_memory"
    assert gateway.queue.submits.empty()
    await until(lambda: gone(redis))
