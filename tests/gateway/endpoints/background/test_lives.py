"""A response in the background outlives the gateway that took it, and a Redis that forgets; over a real Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from shared.bus import streams
from shared.messages.requests.requests import Submit
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.endpoints.background.waiting import begun, ended, events_of, in_status, until

TEXT = "Hello, world!"
CUT = 5

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(redis: Redis, start_gateway: GatewayFactory) -> Starter:
    """One of the gateways of a cluster, without a node."""

    async def start(name: str, **options: Any) -> Gateway:
        return await start_gateway(None, redis=redis, name=name, gateway={"keep_responses_s": 600}, **options)

    return start


async def say(gateway: Gateway, submit: Submit, first: int, last: int | None = None) -> None:
    """These tokens of the text, the end with the last."""
    sampling = gateway.queue.payloads[submit.request_id].sampling
    tokens = [*TEXT.encode(), *sampling.stop_token_ids][first:last]
    scores: Sequence[TokenLogprob] = ()
    if sampling.num_logprobs is not None:
        scores = [TokenLogprob(-float(token), [(97, -0.5)] * sampling.num_logprobs) for token in tokens]
    await gateway.queue.send(submit, first, tokens, "" if last is not None else "stop", logprobs=scores)


def numbers(events: Sequence[dict[str, Any]]) -> list[int]:
    return [event["sequence_number"] for event in events]


def text_of(events: Sequence[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@pytest.mark.parametrize("cut", [0, CUT, len(TEXT)])
@pytest.mark.parametrize("fields", [{}, {"include": ["message.output_text.logprobs"], "top_logprobs": 1}])
async def test_another_gateway_goes_on_where_one_ended(start: Starter, cut: int, fields: dict[str, Any]) -> None:
    one = await start("one")
    queued = await begun(one, **fields)
    first = await one.queue.next_submit()
    seed = one.queue.payloads[first.request_id].sampling.seed
    if cut:
        await say(one, first, 0, cut)
        await in_status(one, queued.id, "in_progress")
    two = await start("two")
    await one.stop()
    assert await one.queue.next_cancel() == first.request_id, "its work is for nobody"
    second = await two.queue.next_submit()
    payload = two.queue.payloads[second.request_id]
    assert second.request_id != first.request_id
    assert [output.token_ids for output in payload.outputs] == ([list(TEXT.encode())[:cut]] if cut else [])
    assert (payload.sampling.seed, second.attempt, second.gateway) == (seed, 1, "two")
    assert second.done_tokens == cut
    await say(two, second, cut)
    answer = await ended(two, queued.id)
    assert (answer.status, answer.output_text) == ("completed", TEXT)
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(TEXT) + 1
    events = await events_of(two, queued.id)
    assert numbers(events) == list(range(len(events)))
    assert text_of(events) == TEXT
    if fields:
        deltas = [event for event in events if event["type"] == "response.output_text.delta"]
        told = [score for event in deltas for score in event["logprobs"]]
        assert [score["logprob"] for score in told] == [-float(token) for token in TEXT.encode()]
        assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == told


async def test_one_goes_through_many_lives(start: Starter) -> None:
    gateway = await start("life-0")
    queued = await begun(gateway)
    for place in range(len(TEXT)):
        submit = await gateway.queue.next_submit()
        assert submit.attempt == place
        await say(gateway, submit, place, place + 1)

        async def written(text: str = TEXT[: place + 1], at: Gateway = gateway) -> bool | None:
            return True if await at_least(at, queued.id, text) else None

        await until(written)
        another = await start(f"life-{place + 1}")
        await gateway.stop()
        gateway = another
    await say(gateway, await gateway.queue.next_submit(), len(TEXT))
    assert (await ended(gateway, queued.id)).output_text == TEXT
    events = await events_of(gateway, queued.id)
    assert numbers(events) == list(range(len(events)))
    assert text_of(events) == TEXT


async def at_least(gateway: Gateway, response_id: str, text: str) -> bool:
    """So much of it can be read."""
    found = ""
    async for event in await gateway.openai.responses.retrieve(response_id, stream=True):
        found += event.delta if event.type == "response.output_text.delta" else ""
        if found == text:
            return True
    return False


async def test_one_that_another_process_has_taken_is_let_go(start: Starter, redis: Redis) -> None:
    """As for a gateway that stood still for so long that it was taken for dead."""
    one = await start("one")
    queued = await begun(one)
    submit = await one.queue.next_submit()
    log = await redis.get(streams.response_log(queued.id))
    await redis.hset(streams.FOLLOWERS, "other", "1")
    await redis.hset(streams.BACKGROUND, queued.id, "other default")
    assert await one.queue.next_cancel() == submit.request_id
    # the other one shows no sign of life: it is missed, and its response comes back
    again = await one.queue.next_submit()
    assert await redis.get(streams.response_log(queued.id)) == log
    await say(one, again, 0)
    assert (await ended(one, queued.id)).output_text == TEXT


async def test_what_redis_has_lost_of_it_is_written_again(start: Starter, redis: Redis) -> None:
    one = await start("one")
    queued = await begun(one)
    submit = await one.queue.next_submit()
    await say(one, submit, 0, CUT)
    await in_status(one, queued.id, "in_progress")
    log = await redis.get(streams.response_log(queued.id)) or b""
    await redis.set(streams.response_log(queued.id), log[: len(log) // 2])  # a fail-over to one that was behind
    await say(one, submit, CUT, CUT + 2)
    await until(lambda: _at_least(one, queued.id, TEXT[: CUT + 2]))
    await redis.flushdb()  # and one that has nothing of it
    await until(lambda: _at_least(one, queued.id, TEXT[: CUT + 2]))
    await say(one, submit, CUT + 2)
    assert (await ended(one, queued.id)).output_text == TEXT
    events = await events_of(one, queued.id)
    assert numbers(events) == list(range(len(events)))
    assert text_of(events) == TEXT


async def _at_least(gateway: Gateway, response_id: str, text: str) -> bool | None:
    async with gateway.http.get(f"/v1/responses/{response_id}") as answer:
        if answer.status != 200:
            return None
    return await at_least(gateway, response_id, text) or None


async def test_a_queue_that_is_away_is_asked_again(start: Starter) -> None:
    one = await start("one")
    one.queue.is_down = True
    queued = await begun(one)
    assert (await one.openai.responses.retrieve(queued.id)).status == "queued"
    one.queue.is_down = False
    await say(one, await one.queue.next_submit(), 0)
    assert (await ended(one, queued.id)).output_text == TEXT


async def test_one_whose_key_is_gone_fails(start: Starter, redis: Redis, start_gateway: GatewayFactory) -> None:
    keys = [{"key": f"key-of-{name}-0123456789", "tenant": "one"} for name in ("old", "new")]
    one = await start("one", keys=keys, key=keys[0]["key"])
    queued = await begun(one)
    await one.queue.next_submit()
    two = await start("two", keys=keys[1:], key=keys[1]["key"])
    await one.stop()
    answer = await ended(two, queued.id)
    assert answer.status == "failed"
    assert answer.error is not None
    assert answer.error.model_dump()["code"] == "invalid_api_key"
