"""A stream that was begun and then stands still, and the accounts of requests that ended in other ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.trace import INVALID_SPAN
from prometheus_client import CollectorRegistry

from gateway.answers import call_record
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait, first_news, rest
from gateway.answers.streamed import StreamedAnswer
from gateway.endpoints.texts.completions import CompletionRenderer
from gateway.http.connections import Connections
from gateway.http.context import CONNECTIONS
from gateway.inflight.calls.job import Job
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.timeline import Timeline
from gateway.metrics.metrics import GatewayMetrics
from gateway.models.models import ServedModel
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Chunk, Tokens
from shared.messages.requests.slo import Slo
from shared.service.admin.admin import listen
from tests.gateway.memory_queue import WAIT_S, MemoryQueue
from tests.gateway.tiny import ids


@pytest.fixture
def job(tiny: ServedModel) -> Job:
    return Job(
        request_id="r",
        model="tiny",
        prompt_token_ids=ids("x"),
        sampling=Sampling(max_tokens=10),
        stops=[],
        token_bytes=tiny.tokenizer.token_bytes,
        slo=Slo(name="interactive", deadline_s=20),
        tenant="acme",
    )


def record(job: Job | None = None) -> Visit:
    return Visit("r", "acme", INVALID_SPAN, Timeline(arrival_s=0.0), [job] if job else [])


@asynccontextmanager
async def impatient(*jobs: Job) -> AsyncIterator[tuple[MemoryQueue, str]]:
    """A server of one stream, which loses its patience soon, but not with what waits in the queue."""
    queue = MemoryQueue()
    dispatcher = Dispatcher(queue, "gateway-0")

    async def handle(http: web.Request) -> web.StreamResponse:
        patience = NewsWait(queue_ttl_s=WAIT_S, cold_start_ttl_s=WAIT_S, keep_alive_s=0.01, max_silence_s=0.03)
        renderer = CompletionRenderer("cmpl-r", 0, "tiny", [""] * len(jobs), None, include_usage=False)
        async with dispatcher.run(*jobs) as call:
            answer = StreamedAnswer(http, record(), call, renderer, patience, include_running_usage=False)
            return await answer.send(include_queue=False)

    app = web.Application()
    app[CONNECTIONS] = Connections(1)
    app.add_routes([web.post("/", handle)])
    runner = await listen(app, "127.0.0.1", 0)
    reader = asyncio.create_task(queue.serve(dispatcher))
    host, port = runner.addresses[0][:2]
    try:
        yield queue, f"http://{host}:{port}"
    finally:
        reader.cancel()
        await runner.cleanup()


async def test_silence_is_filled_with_comments_and_then_given_up(job: Job) -> None:
    async with impatient(job) as (queue, url), aiohttp.ClientSession(url) as client:

        async def ask() -> str:
            async with client.post("/") as response:
                return await response.text()

        asking = asyncio.create_task(ask())
        submit = await queue.next_submit()
        await queue.send(submit, 0, ids("a"))
        first, *comments, last = (await asyncio.wait_for(asking, WAIT_S)).strip().split("\n\n")
        assert '"text":"a"' in first
        assert comments == [": keep-alive"] * 2
        assert '"code":"no_endpoints"' in last
        assert await queue.next_cancel() == "r"


async def test_a_whole_answer_that_stands_still_is_given_up(job: Job) -> None:
    queue = MemoryQueue()
    dispatcher = Dispatcher(queue, "gateway-0")
    patience = NewsWait(queue_ttl_s=WAIT_S, cold_start_ttl_s=WAIT_S, keep_alive_s=0.01, max_silence_s=0.03)
    async with dispatcher.run(job) as call:
        await dispatcher.deliver(Tokens(node="node-0", chunks=[Chunk("r", 0, 0, ids("a"))]))
        assert await first_news(call, patience) == [Delta("a", 1)]
        with pytest.raises(ApiError, match=r"no token has come for 0\.03 s"):
            await rest(call, patience)
    assert await queue.next_cancel() == "r"


async def test_a_prompt_that_waits_in_the_queue_may_take_longer_than_one_that_has_begun(job: Job) -> None:
    async with impatient(job, replace(job, request_id="s")) as (queue, url), aiohttp.ClientSession(url) as client:

        async def ask() -> aiohttp.ClientResponse:
            return await client.post("/")

        asking = asyncio.create_task(ask())
        first, second = await queue.next_submit(), await queue.next_submit()
        await queue.send(first, 0, ids("a"), "stop")
        async with await asyncio.wait_for(asking, WAIT_S) as response:
            for _ in range(5):  # more than the silence that is allowed later
                await asyncio.wait_for(response.content.readuntil(b": keep-alive\n\n"), WAIT_S)
            await queue.send(second, 0, ids("b"), "stop")
            text = await asyncio.wait_for(response.text(), WAIT_S)
    assert '"index":1,"text":"b"' in text
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("outcome", "tokens", "now", "attained", "missed"),
    [
        (call_record.OK, 3, 1.0, 1, 0),
        (call_record.OK, 3, 21.0, 0, 1),
        (call_record.ERROR, 3, 1.0, 0, 1),
        ("ttl-expired", 0, 1.0, 0, 1),
        (call_record.CANCELLED, 3, 21.0, 0, 0),
    ],
)
def test_promises_are_judged_by_how_an_accepted_request_ended(
    job: Job, outcome: str, tokens: int, now: float, attained: int, missed: int
) -> None:
    registry = CollectorRegistry()
    account = record(job)
    account.timeline.add(tokens, now)
    account.outcome = outcome
    account.close(GatewayMetrics(registry), now)
    labels = {"model": "tiny", "slo_class": "interactive", "tenant": "acme"}
    assert registry.get_sample_value("treadle_requests_total", labels | {"outcome": outcome}) == 1
    assert (registry.get_sample_value("treadle_slo_attained_total", labels) or 0) == attained
    assert (registry.get_sample_value("treadle_slo_missed_total", labels) or 0) == missed
