"""What of prompts lay in a cache, as nodes tell it, in the counts of whole answers and of streams."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.tiny import ids

TEXT = "/v1/completions"
BODY = {"model": "tiny", "prompt": "a prompt", "max_tokens": 9}
LABELS = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}


async def usage_of(gateway: Gateway, *cached_tokens: int | None) -> dict[str, Any]:
    """Of an answer to as many prompts as nodes tell something of."""
    prompts = ["a prompt"] * len(cached_tokens)
    async with sending(gateway.http.post(TEXT, json=BODY | {"prompt": prompts})) as answer:
        submits = [await gateway.queue.next_submit() for _ in prompts]
        for submit, num_tokens in zip(submits, cached_tokens, strict=True):
            await gateway.queue.send(submit, 0, ids("a"), cached_tokens=num_tokens)
            await gateway.queue.send(submit, 1, ids("b"), "stop")
        usage: dict[str, Any] = (await answer())["usage"]
    return usage


async def test_what_was_found_is_told_and_so_is_nothing(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    counts = {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}
    assert await usage_of(gateway, 4) == counts | {"prompt_tokens_details": {"cached_tokens": 4}}
    assert await usage_of(gateway, 0) == counts | {"prompt_tokens_details": {"cached_tokens": 0}}


async def test_where_a_node_does_not_tell_nothing_is_made_up(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    counts = {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10}
    assert await usage_of(gateway, None) == counts
    twice = {"prompt_tokens": 16, "completion_tokens": 4, "total_tokens": 20}
    assert await usage_of(gateway, 4, None) == twice, "nor is half a sum one"


async def test_several_prompts_are_added_up(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    assert (await usage_of(gateway, 4, 0))["prompt_tokens_details"] == {"cached_tokens": 4}
    assert (await usage_of(gateway, 4, 6))["prompt_tokens_details"] == {"cached_tokens": 10}


async def test_a_further_attempt_changes_nothing(start_gateway: GatewayFactory) -> None:
    """It may find what the first one has computed."""
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("a"), cached_tokens=4)
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.send(second, 1, ids("b"), "stop", cached_tokens=8)
        assert (await answer())["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


async def test_nor_does_what_a_first_attempt_did_not_tell(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("a"))
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.send(second, 1, ids("b"), "stop", cached_tokens=8)
        assert "prompt_tokens_details" not in (await answer())["usage"]


async def test_an_attempt_that_brought_nothing_does_not_count(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.send(first, 0, ids("x"), cached_tokens=8)
        await gateway.queue.send(second, 0, ids("ab"), "stop", cached_tokens=4)
        assert (await answer())["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}


async def test_streams_tell_it_at_their_end_and_with_running_counts(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = BODY | {"prompt": ["a prompt", "another"], "stream": True, "stream_options": options}
    asking = asyncio.create_task(gateway.http.post(TEXT, json=body))
    first, second = [await gateway.queue.next_submit() for _ in range(2)]
    await gateway.queue.send(first, 0, ids("a"), cached_tokens=4)
    async with await asking as response:
        begun = await response.content.readline()
        await gateway.queue.send(second, 0, ids("b"), cached_tokens=2)
        await gateway.queue.send(first, 1, ids("c"), "stop")
        await gateway.queue.send(second, 1, ids("d"), "stop")
        events = [begun, *(await response.content.read()).splitlines()]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events if event.startswith(b"data: {")]
    told = [chunk["usage"].get("prompt_tokens_details") for chunk in chunks]
    assert told[0] is None, "of the second prompt nothing is known yet"
    assert told[-1] == {"cached_tokens": 6}
    assert told == [None] * told.count(None) + [{"cached_tokens": 6}] * (len(told) - told.count(None))


async def test_operators_see_the_sum(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    await usage_of(gateway, 4)
    await usage_of(gateway, None)
    assert gateway.metric("treadle_prompt_tokens_total", **LABELS) == 16
    assert gateway.metric("treadle_cached_prompt_tokens_total", **LABELS) == 4
    told = [dict(span.attributes or {}) for span in gateway.spans.get_finished_spans()]
    assert [one.get("gen_ai.usage.cache_read.input_tokens") for one in told] == [4, None]
