"""Requests that are told to come again later: why, and after how long."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest

from gateway.answers.news_wait import NewsWait
from shared.bus.redis_health import RedisHealth
from shared.messages.requests.requests import QueueLine
from tests.gateway.conftest import GatewayFactory, sending
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import saying
from tests.gateway.tiny import ids
from tests.redis.waiting import until

TEXT = "/v1/completions"
BODY = {"model": "tiny", "prompt": "x"}
BUSY = QueueLine("tiny", "interactive", 8, 4, 41.2, 60.0)
OTHER = QueueLine("base", "batch-1", 1, 1, 7.1, 9.0)
AWAY = QueueLine("tiny", "interactive", 1, 0, math.inf, math.inf)
LABELS = {"model": "tiny", "slo_class": "interactive", "tenant": "default"}


@pytest.mark.parametrize("stream", [{}, {"stream": True}, {"stream": True, "stream_options": {"include_queue": True}}])
async def test_a_promise_that_cannot_be_kept_is_refused_with_the_prediction(
    start_gateway: GatewayFactory, stream: dict[str, Any]
) -> None:
    gateway = await start_gateway()
    asking = asyncio.create_task(refused(gateway, TEXT, BODY | stream))
    await gateway.queue.reject(await gateway.queue.next_submit(), wait_s=31.24, retry_after_s=11.3)
    status, error, headers = await asking
    assert (status, error["code"], error["type"]) == (429, "would_be_late", "rate_limit_error")
    assert error["message"] == (
        "the predicted wait is 31.2 s, too long for the promise 'interactive' (deadline_s 20); "
        "ask again later, or for a promise that leaves more time"
    )
    assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("12", "saturated")
    # the queue manager has forgotten it, so nothing is cancelled; the payload goes
    assert await gateway.queue.next_finish() == headers["x-treadle-request-id"]
    assert gateway.queue.cancels.empty()
    assert gateway.metric("treadle_requests_total", **LABELS, outcome="saturated") == 1
    assert gateway.metric("treadle_refused_requests_total", **LABELS, code="would_be_late") == 1


@pytest.mark.parametrize(("wait_s", "said"), [(0.304, "0.304"), (0.26, "0.26"), (0.5, "0.5"), (0.30000004, "0.300000")])
async def test_the_numbers_of_a_refusal_are_seen_to_differ(
    start_gateway: GatewayFactory, wait_s: float, said: str
) -> None:
    gateway = await start_gateway(slo_classes={"interactive": {"ttft_s": 0.3, "late": "refuse"}})
    asking = asyncio.create_task(refused(gateway, TEXT, BODY))
    await gateway.queue.reject(await gateway.queue.next_submit(), wait_s=wait_s, retry_after_s=1.0)
    _, error, _ = await asking
    assert error["message"].startswith(
        f"the predicted wait is {said} s, too long for the promise 'interactive' (ttft_s 0.3); "
    )


async def test_of_several_prompts_one_that_would_be_late_refuses_all(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = asyncio.create_task(refused(gateway, TEXT, {"model": "tiny", "prompt": ["x", "y"]}))
    first, second = await gateway.queue.next_submit(), await gateway.queue.next_submit()
    await gateway.queue.reject(second, wait_s=30.0, retry_after_s=1.0)
    status, error, _ = await asking
    assert (status, error["code"]) == (429, "would_be_late")
    assert await gateway.queue.next_cancel() == first.request_id
    assert await gateway.queue.next_finish() == second.request_id
    assert gateway.dispatcher.num_inflight == 0


async def test_a_rejection_of_an_older_attempt_is_void(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        await gateway.queue.lose(first)
        second = await gateway.queue.next_submit()
        await gateway.queue.reject(first, wait_s=30.0, retry_after_s=1.0)
        await gateway.queue.send(second, 0, ids("a"), "stop")
        assert (await answer())["choices"][0]["text"] == "a"


async def test_openai_s_client_sees_a_rate_limit(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    asking = asyncio.create_task(gateway.openai.completions.create(model="tiny", prompt="x"))
    await gateway.queue.reject(await gateway.queue.next_submit(), wait_s=30.0, retry_after_s=1e9)
    with pytest.raises(openai.RateLimitError) as caught:
        await asking
    assert caught.value.response.headers["Retry-After"] == "3600"


async def test_who_waited_too_long_is_told_the_predicted_wait(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(slo_classes={"interactive": {"deadline_s": 20, "queue_ttl_s": 0.05}})
    await gateway.queue.report(BUSY, OTHER)
    status, error, headers = await refused(gateway, TEXT, BODY)
    assert (status, error["code"], headers["Retry-After"]) == (429, "ttl_expired", "42")


async def test_a_full_gateway_names_the_shortest_wait(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 1})
    await gateway.queue.report(BUSY, OTHER)
    async with sending(gateway.http.post(TEXT, json=BODY)):
        await gateway.queue.next_submit()
        status, error, headers = await refused(gateway, TEXT, BODY)
    assert (status, error["code"], headers["Retry-After"]) == (429, "saturated", "8")


async def test_a_model_that_no_node_can_serve_is_given_up_before_the_time_of_its_class(
    start_gateway: GatewayFactory,
) -> None:
    gateway = await start_gateway(gateway={"cold_start_ttl_s": 0.05})
    await gateway.queue.report(AWAY)
    status, error, headers = await refused(gateway, TEXT, BODY)
    assert (status, error["code"], error["type"]) == (503, "no_endpoints", "server_error")
    assert error["message"] == "no node could serve the model 'tiny' for 0.05 s"
    assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("5", "no-endpoints")
    assert await gateway.queue.next_cancel() == headers["x-treadle-request-id"]


def test_who_gives_way_waits_in_the_queue_once_more() -> None:
    # queue_ttl_s, and the silence that is allowed in an answer that was begun
    times = {ttl_s: NewsWait.of(ttl_s, 300.0, is_ranked=False) for ttl_s in (60.0, 7200.0)}
    assert [(one.queue_ttl_s, one.max_silence_s) for one in times.values()] == [(60.0, 600.0), (7200.0, 7200.0)]
    ranked = NewsWait.of(60.0, 300.0, is_ranked=True)
    assert (ranked.queue_ttl_s, ranked.max_silence_s) == (660.0, 600.0)


def test_only_the_time_without_any_node_counts_as_cold() -> None:
    patience = NewsWait(queue_ttl_s=600.0, cold_start_ttl_s=300.0)
    assert patience.queue_left_s(began_s=1000.0, now=1100.0) == 500.0
    # swapped out, but a node could serve it: held, whatever it has waited
    assert patience.cold_left_s(began_s=1000.0, unserved_since_s=None, now=1550.0) == 300.0
    # since before it came, and since it waits
    assert patience.cold_left_s(began_s=1000.0, unserved_since_s=900.0, now=1100.0) == 200.0
    assert patience.cold_left_s(began_s=1000.0, unserved_since_s=1050.0, now=1100.0) == 250.0
    assert patience.cold_left_s(began_s=1000.0, unserved_since_s=1050.0, now=1350.0) == 0.0


@pytest.mark.parametrize(("ttft_bound_s", "predicted_s", "above_p90"), [("10.0", 0.0, 1.0), ("-20.0", 40.0, 0.0)])
async def test_predicted_and_actual_waits_are_compared(
    start_gateway: GatewayFactory, ttft_bound_s: str, predicted_s: float, above_p90: float
) -> None:
    gateway = await start_gateway(saying("a"))
    await gateway.queue.report(QueueLine("tiny", "interactive", 0, 0, predicted_s, predicted_s))
    await gateway.openai.completions.create(model="tiny", prompt="x")
    labels = {"model": "tiny", "slo_class": "interactive"}
    assert gateway.metric("treadle_queue_wait_error_seconds_bucket", **labels, le=ttft_bound_s) == 1
    assert gateway.metric("treadle_queue_wait_above_p90_total", **labels) == above_p90
    assert gateway.metric("treadle_queue_predicted_wait_seconds", **labels) == predicted_s


async def test_nothing_is_compared_where_nothing_was_predicted(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    await gateway.openai.completions.create(model="tiny", prompt="x")
    await gateway.queue.report(AWAY)
    await gateway.openai.completions.create(model="tiny", prompt="x")
    labels = {"model": "tiny", "slo_class": "interactive"}
    assert gateway.metric("treadle_queue_wait_error_seconds_count", **labels) == 0
    assert gateway.metric("treadle_queue_predicted_wait_seconds", **labels) == math.inf


# --- memory --------------------------------------------------------------------------------------------------------

KIB = 1024
SMALL = {"max_body_bytes": 16 * KIB, "max_inflight_bytes": 160 * KIB}


async def test_bodies_and_payloads_are_bounded_by_bytes_too(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway=SMALL)
    body = json.dumps(BODY | {"prompt": "x" * 20}).encode() + b" " * 16_000
    each = len(body) + 1024 + 3 * 20
    async with AsyncExitStack() as sent:
        for _ in range(9):
            await sent.enter_async_context(sending(gateway.http.post(TEXT, data=body)))
            await gateway.queue.next_submit()
        assert 160 * KIB - each < gateway.metric("treadle_inflight_bytes") == 9 * each <= 160 * KIB
        status, error, headers = await refused(gateway, TEXT, body)
        assert (status, error["code"], headers["x-treadle-dropped-reason"]) == (429, "saturated", "saturated")
        assert error["message"] == "with this request, more than 163840 bytes of requests would be in flight"
        assert gateway.queue.submits.empty()
    for _ in range(9):
        await gateway.queue.next_cancel()
    assert gateway.metric("treadle_inflight_bytes") == 0
    assert gateway.metric("treadle_inflight_requests") == 0


async def test_a_body_counts_while_it_is_read_with_all_that_it_may_have(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"), gateway=SMALL)
    begun, go_on = asyncio.Event(), asyncio.Event()
    body = json.dumps(BODY).encode()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:4]
        begun.set()
        await go_on.wait()
        yield body[4:]

    async def is_being_read() -> bool:
        return gateway.metric("treadle_inflight_bytes") > 0

    async with sending(gateway.http.post(TEXT, data=slowly())) as answer:
        await begun.wait()
        await until(is_being_read)
        assert gateway.metric("treadle_inflight_bytes") == 16 * KIB, "nobody has said how long it will be"
        go_on.set()
        assert (await answer())["choices"][0]["text"] == "a"


async def test_a_request_is_refused_before_the_memory_of_redis_is_full(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    gateway.health["redis"] = RedisHealth(used_bytes=799, max_bytes=1000)
    await gateway.openai.completions.create(model="tiny", prompt="x")
    await gateway.queue.next_submit()
    gateway.health["redis"] = RedisHealth(used_bytes=800, max_bytes=1000)
    status, error, headers = await refused(gateway, TEXT, BODY)
    assert (status, error["code"], error["type"]) == (429, "no_memory", "rate_limit_error")
    assert error["message"] == "the memory of the queue is full"
    assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("5", "saturated")
    assert gateway.queue.submits.empty()
    unread = {"model": "unknown", "slo_class": "unknown", "tenant": "default"}
    assert gateway.metric("treadle_refused_requests_total", **unread, code="no_memory") == 1
    assert gateway.metric("treadle_redis_used_bytes") == 800
    assert gateway.metric("treadle_redis_max_bytes") == 1000
    gateway.health["redis"] = RedisHealth(used_bytes=1000, max_bytes=0)
    await gateway.openai.completions.create(model="tiny", prompt="x")


async def test_a_queue_without_memory_refuses_and_leaves_nothing(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    await gateway.queue.report(BUSY, OTHER)  # how long others wait is not how long it takes
    gateway.queue.is_full = True
    status, error, headers = await refused(gateway, TEXT, BODY | {"stream": True})
    assert (status, error["code"], headers["Retry-After"]) == (429, "no_memory", "5")
    assert await gateway.queue.next_cancel() == headers["x-treadle-request-id"]
    assert gateway.metric("treadle_refused_requests_total", **LABELS, code="no_memory") == 1
    assert gateway.dispatcher.num_inflight == 0


async def test_a_full_queue_takes_further_attempts(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with sending(gateway.http.post(TEXT, json=BODY)) as answer:
        first = await gateway.queue.next_submit()
        gateway.queue.is_full = True
        await gateway.queue.lose(first)
        await gateway.queue.send(await gateway.queue.next_submit(), 0, ids("a"), "stop")
        assert (await answer())["choices"][0]["text"] == "a"


async def test_a_disk_that_cannot_be_written_is_seen(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    gateway.health["redis"] = RedisHealth(failing=frozenset({"log"}))
    found = {
        name: gateway.metric("treadle_redis_disk_failing", operation=name) for name in ("log", "rewrite", "snapshot")
    }
    assert found == {"log": 1, "rewrite": 0, "snapshot": 0}
