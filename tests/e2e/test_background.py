"""Responses in the background outlive whoever dies: no token is lost or doubled, and their streams go on."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from openai import APIConnectionError, AsyncOpenAI, InternalServerError
from openai.types.responses import Response

from shared.bus import streams
from tests.e2e.cluster import Cluster, kill
from tests.e2e.traffic import openai_client

LIMIT_S = 120.0
NUM = 200  # tokens: a few seconds
ASKED: list[dict[str, Any]] = [
    {"input": "Tell me of the sea.", "temperature": 0.0, "extra_body": {"ignore_eos": True}, "max_output_tokens": NUM},
    {"input": "Tell me of the moon.", "extra_body": {"ignore_eos": True, "seed": 7}, "max_output_tokens": NUM},
]
"""One that takes the likeliest tokens, one that draws by its seed."""


async def foreground(client: AsyncOpenAI, model: str) -> list[str]:
    """What is answered where nobody dies."""
    answers: list[Response] = [await client.responses.create(model=model, **asked) for asked in ASKED]
    return [answer.output_text for answer in answers]


async def begin(client: AsyncOpenAI, model: str) -> list[str]:
    """The same in the background, by their ids."""
    begun: list[Response] = []
    for asked in ASKED:
        fields: dict[str, Any] = {"model": model, "background": True} | asked
        begun.append(await client.responses.create(**fields))
    assert {response.status for response in begun} == {"queued"}
    return [response.id for response in begun]


async def first_events(client: AsyncOpenAI, response_id: str, num_deltas: int) -> list[Any]:
    """The beginning of a stream, up to so many pieces of text."""
    events: list[Any] = []
    async with await client.responses.retrieve(response_id, stream=True) as stream:
        async for event in stream:
            events.append(event)
            if sum(one.type == "response.output_text.delta" for one in events) == num_deltas:
                return events
    raise AssertionError("it has ended before anybody could die")


async def whole_stream(client: AsyncOpenAI, response_id: str, events: list[Any]) -> list[Any]:
    """The rest behind ``events``, whatever breaks."""
    async with asyncio.timeout(LIMIT_S):
        while events[-1].type not in ("response.completed", "response.incomplete"):
            try:
                last = events[-1].sequence_number
                rest = await client.responses.retrieve(response_id, stream=True, starting_after=last)
                events += [event async for event in rest if not is_error(event)]
            except (APIConnectionError, InternalServerError):
                await asyncio.sleep(0.2)
    return events


def is_error(event: Any) -> bool:
    """An error of the stream, and no event of the response."""
    return getattr(event, "sequence_number", None) is None


def check(events: list[Any], text: str) -> None:
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == text
    assert events[-1].response.output_text == text


async def test_they_outlive_the_gateway(client: AsyncOpenAI, cluster: Cluster) -> None:
    model = cluster.models[0]
    texts = await foreground(client, model)
    conversation = await client.conversations.create()
    ids = await begin(client, model)
    begun = [await first_events(client, response_id, 3) for response_id in ids]
    held: Response = await client.responses.create(
        model=model, background=True, conversation=conversation.id, **ASKED[0]
    )
    cluster.kill("gateway")
    await asyncio.to_thread(cluster.up)
    async with openai_client(cluster) as again:
        for response_id, events, text in zip(ids, begun, texts, strict=True):
            check(await whole_stream(again, response_id, events), text)
            answer = await again.responses.retrieve(response_id)
            assert (answer.status, answer.output_text) == ("incomplete", text)
            assert answer.usage is not None
            assert answer.usage.output_tokens == NUM
        check(await whole_stream(again, held.id, await first_events(again, held.id, 1)), texts[0])
        items = await again.conversations.items.list(conversation.id, order="asc")
        assert [part.text for item in items.data for part in getattr(item, "content", [])] == [
            ASKED[0]["input"],
            texts[0],
        ]
    with cluster.redis() as redis:
        assert not redis.hlen(streams.BACKGROUND)
    assert cluster.logs()["gateway.log"].count("response followed") >= len(ids) + 1


@pytest.mark.parametrize("name", ["queue-manager", "redis"])
async def test_they_outlive_a_service(client: AsyncOpenAI, cluster: Cluster, name: str) -> None:
    model = cluster.models[0]
    texts = await foreground(client, model)
    ids = await begin(client, model)
    begun = [await first_events(client, response_id, 3) for response_id in ids]
    cluster.kill(name)
    await asyncio.to_thread(cluster.up)
    for response_id, events, text in zip(ids, begun, texts, strict=True):
        check(await whole_stream(client, response_id, events), text)


async def test_one_is_cancelled_at_its_node(client: AsyncOpenAI, cluster: Cluster) -> None:
    response: Response = await client.responses.create(
        model=cluster.models[0], input="Tell me all.", background=True, max_output_tokens=7000
    )
    await first_events(client, response.id, 1)
    assert (await client.responses.cancel(response.id)).status == "cancelled"
    await asyncio.to_thread(cluster.wait_idle)


async def test_another_worker_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    cluster = Cluster.predicted(tmp_path, gateway={"workers": 2, "keep_responses_s": 600})
    with cluster.running():
        async with openai_client(cluster) as client:
            response: Response = await client.responses.create(
                model="chat", input="Go on.", background=True, max_output_tokens=NUM, extra_body={"ignore_eos": True}
            )
            events = await first_events(client, response.id, 3)
            with cluster.redis() as redis:
                follower = str(redis.hget(streams.BACKGROUND, response.id))
            [(number, _)] = re.findall(r"-w(\d+)-(\w+) default", follower)
            kill(pids_of_workers(cluster)[int(number)])
            events = await whole_stream(client, response.id, events)
        check(events, events[-1].response.output_text)
        assert events[-1].response.usage.output_tokens == NUM
        told = [line for line in logged(cluster) if line["event"] == "response followed"]
        assert [line["life"] for line in told] == [1]
        cluster.wait_idle()


def pids_of_workers(cluster: Cluster) -> dict[int, int]:
    """As the parent has told, by number; the newest last."""
    return {line["worker"]: line["pid"] for line in logged(cluster) if line["event"] == "worker is started"}


def logged(cluster: Cluster) -> list[dict[str, Any]]:
    """What the gateway has logged."""
    return [json.loads(line) for line in cluster.logs()["gateway.log"].splitlines() if line.startswith("{")]
