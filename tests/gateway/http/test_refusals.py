"""Every refusal over HTTP: status, OpenAI's shape, and the headers that a program reads."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import openai
import pytest
import structlog
from openai.types.chat import ChatCompletionMessageParam

from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import WAIT_S, saying
from tests.gateway.tiny import ids

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "hi"}
LONG = {"role": "user", "content": "x" * 64}
TOO_LONG = {"content": "x" * 767}  # with the other message's "hi" one more than 64 tokens of 12, as <|im_start|> has
LATE_SYSTEM = {"role": "system", "content": "too late"}


async def refused(gateway: Gateway, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any], Any]:
    """Status, the error object, headers."""
    data = {"data": body} if isinstance(body, bytes) else {"json": body}
    async with gateway.http.post(path, headers=headers, **data) as response:
        assert len(response.headers["x-treadle-request-id"]) == 32
        answer = await response.json()
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        return response.status, answer["error"], response.headers


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        (CHAT, {"model": "gpt", "messages": [USER]}, 404, "model_not_found", "model"),
        (CHAT, {"model": "base", "messages": [USER]}, 400, "no_chat_template", "model"),
        (CHAT, {"model": "tiny", "messages": [USER, LATE_SYSTEM]}, 400, "chat_template", "messages"),
        (CHAT, {"model": "tiny", "messages": [LONG]}, 400, "context_length_exceeded", "messages"),
        (CHAT, {"model": "tiny", "messages": [USER], "max_tokens": 64}, 400, "context_length_exceeded", "max_tokens"),
        (
            CHAT,
            {"model": "tiny", "messages": [USER], "max_completion_tokens": 64},
            400,
            "context_length_exceeded",
            "max_completion_tokens",
        ),
        (CHAT, {"model": "tiny", "messages": [USER], "slo": "gold"}, 400, "unknown_slo_class", "slo"),
        (CHAT, {"model": "tiny", "messages": [USER], "functions": [{}]}, 400, "unsupported_parameter", "functions"),
        (
            CHAT,
            {"model": "tiny", "messages": [USER], "tools": [{}]},
            400,
            "missing_required_parameter",
            "tools[0].type",
        ),
        (CHAT, {"model": "tiny"}, 400, "missing_required_parameter", "messages"),
        (CHAT, b"{", 400, "invalid_json", None),
        (TEXT, {"model": "tiny", "prompt": ""}, 400, "invalid_value", "prompt"),
        (TEXT, {"model": "tiny", "prompt": []}, 400, "invalid_value", "prompt"),
        (TEXT, {"model": "tiny", "prompt": [264]}, 400, "invalid_value", "prompt"),
        (TEXT, {"model": "tiny", "prompt": [-1]}, 400, "invalid_value", "prompt"),
        (TEXT, {"model": "tiny", "prompt": "x" * 64}, 400, "context_length_exceeded", "prompt"),
        (TEXT, {"model": "tiny", "prompt": "x", "suffix": "y"}, 400, "unsupported_parameter", "suffix"),
        (TEXT, {"model": "tiny", "prompt": "x", "n": 17}, 400, "invalid_value", "n"),
        (TEXT, {"model": "tiny", "prompt": "x", "logit_bias": {"264": 1}}, 400, "invalid_value", "logit_bias"),
        (TEXT, {"model": "tiny", "prompt": "x", "temprature": 1}, 400, "unknown_parameter", "temprature"),
        (TEXT, {"model": "tiny", "prompt": "x" * 2048}, 413, "request_entity_too_large", None),
        ("/v1/nothing", {}, 404, "not_found", None),
        ("/v1/models", {}, 405, "method_not_allowed", None),
    ],
)
async def test_what_is_wrong_with_a_request_is_said(
    start_gateway: GatewayFactory, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    gateway = await start_gateway(gateway={"max_body_bytes": 2000})
    found, error, _ = await refused(gateway, path, body)
    assert (found, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert gateway.queue.submits.empty()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'"a text"', "the body: it is no JSON object"),
        (b"[1]", "the body: it is no JSON object"),
        ({"model": "tiny", "messages": ["hi"]}, "'messages[0]': it is no JSON object"),
    ],
)
async def test_no_class_of_ours_is_named(start_gateway: GatewayFactory, body: Any, message: str) -> None:
    status, error, _ = await refused(await start_gateway(), CHAT, body)
    assert (status, error["code"], error["message"]) == (400, "invalid_value", message)


async def test_an_unknown_model_is_answered_with_the_known_ones(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    with pytest.raises(openai.NotFoundError, match="there are: tiny, org/tiny-b, base"):
        await gateway.openai.completions.create(model="gpt", prompt="x")


async def test_what_is_refused_before_the_middlewares_has_a_request_id_too(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.post(TEXT, data=b"{}", headers={"Expect": "a miracle"}) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (417, "expectation_failed")
        assert "miracle" not in await response.text()
        assert len(response.headers["x-treadle-request-id"]) == 32


async def test_a_long_prompt_is_answered_with_both_numbers(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    with pytest.raises(openai.BadRequestError, match=r"context length is 64 tokens.*\(70 in the prompt, 1 for the"):
        await gateway.openai.completions.create(model="tiny", prompt=ids("x" * 70))


@pytest.mark.parametrize(("fields", "param"), [({"n": 3}, "n"), ({"n": 2, "best_of": 3}, "best_of")])
async def test_more_candidates_than_a_node_runs_at_once_are_refused(
    start_gateway: GatewayFactory, fields: dict[str, int], param: str
) -> None:
    gateway = await start_gateway(engine={"max_num_seqs": 2})
    status, error, _ = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x", **fields})
    assert (status, error["code"], error["param"]) == (400, "invalid_value", param)
    assert error["message"] == "a node of this cluster runs 2 candidates at a time"


async def test_what_is_tokenised_in_a_thread_gets_the_same_answer(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    turns: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "x"}
    ] * 40  # 9 tokens each, and 11 that begin the answer
    with pytest.raises(openai.BadRequestError, match=r"371 in the prompt"):
        await gateway.openai.chat.completions.create(model="tiny", messages=turns)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (TEXT, {"prompt": "x" * 769}),
        (TEXT, {"prompt": ["x", "x" * 769]}),
        (CHAT, {"messages": [USER, LONG | TOO_LONG]}),
    ],
)
async def test_a_text_that_cannot_fit_is_refused_by_its_characters(
    start_gateway: GatewayFactory, path: str, field: dict[str, Any]
) -> None:
    gateway = await start_gateway()
    status, error, _ = await refused(gateway, path, {"model": "tiny", **field})
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", next(iter(field)))
    assert error["message"].startswith("the model's context length is 64 tokens, which hold 768 characters at the very")


async def test_keys(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(
        saying("a"), keys=[{"key": "good", "tenant": "acme", "slo_classes": ["batch-1"]}], key="good"
    )
    body = {"model": "tiny", "prompt": "x"}
    for headers in ({}, {"Authorization": "Bearer bad"}):
        status, error, answer_headers = await refused(gateway, TEXT, body, **headers)
        assert (status, error["code"], error["type"]) == (401, "invalid_api_key", "authentication_error")
        assert answer_headers["WWW-Authenticate"] == "Bearer"
    good = {"Authorization": "Bearer good"}
    for forbidden, extra in (({"slo": "interactive"}, {}), ({}, {"x-treadle-slo": "interactive"})):
        status, error, _ = await refused(gateway, TEXT, body | forbidden, **good, **extra)
        assert (status, error["code"], error["param"]) == (403, "slo_not_allowed", "slo")
        assert error["type"] == "permission_error"
    await gateway.openai.completions.create(model="tiny", prompt="x")
    submit = await gateway.queue.next_submit()
    assert (submit.tenant, submit.slo.name) == ("acme", "batch-1")


async def test_the_header_names_a_class(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("a"))
    await gateway.openai.completions.create(model="tiny", prompt="x", extra_headers={"x-treadle-slo": "batch-2"})
    assert (await gateway.queue.next_submit()).slo.name == "batch-2"


async def test_a_full_gateway_refuses_at_once(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_inflight": 1})
    body = {"model": "tiny", "prompt": "x"}
    async with sending(gateway.http.post(TEXT, json=body)) as answer:
        submit = await gateway.queue.next_submit()
        status, error, headers = await refused(gateway, TEXT, body)
        assert (status, error["code"], error["type"]) == (429, "saturated", "rate_limit_error")
        assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("1", "saturated")
        await gateway.queue.send(submit, 0, ids("a"), "stop")
        assert (await answer())["choices"][0]["text"] == "a"
    gateway.queue.answer = saying("b")
    assert (await gateway.openai.completions.create(model="tiny", prompt="x")).choices[0].text == "b"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_start_in_time_is_dropped(start_gateway: GatewayFactory, stream: bool) -> None:
    gateway = await start_gateway(slo_classes={"interactive": {"queue_ttl_s": 0.02}})
    status, error, headers = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x", "stream": stream})
    assert (status, error["code"]) == (429, "ttl_expired")
    assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("10", "ttl-expired")
    assert await gateway.queue.next_cancel() == headers["x-treadle-request-id"]


async def test_a_queue_that_is_away_is_a_503(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    gateway.queue.is_down = True
    status, error, headers = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x"})
    assert (status, error["code"], error["type"]) == (503, "no_endpoints", "server_error")
    assert (headers["Retry-After"], headers["x-treadle-dropped-reason"]) == ("5", "no-endpoints")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_node_before_the_first_text_is_a_500(start_gateway: GatewayFactory, stream: bool) -> None:
    gateway = await start_gateway(
        lambda payload: [Chunk(payload.request_id, 0, 0, [], "error", "out of memory", is_last=True)]
    )
    status, error, _ = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x", "stream": stream})
    assert (status, error["code"], error["type"]) == (500, "generation_failed", "server_error")
    assert "memory" not in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_node_refuses_is_a_400_with_its_reason(start_gateway: GatewayFactory, stream: bool) -> None:
    why = "3 sequences of 900 tokens need 180 KV blocks; the engine has 100 for one request"
    gateway = await start_gateway(lambda payload: [Chunk(payload.request_id, 0, 0, [], "refused", why, is_last=True)])
    status, error, _ = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x", "stream": stream})
    assert (status, error["code"], error["type"]) == (400, "request_too_large", "invalid_request_error")
    assert error["message"].endswith(why)


async def test_an_error_in_a_stream_is_an_event_and_no_done(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()

    async def ask() -> aiohttp.ClientResponse:
        return await gateway.http.post(TEXT, json={"model": "tiny", "prompt": "x", "stream": True})

    asking = asyncio.create_task(ask())
    submit = await gateway.queue.next_submit()
    await gateway.queue.send(submit, 0, ids("abc"))
    async with await asyncio.wait_for(asking, WAIT_S) as response:
        assert response.status == 200
        await gateway.queue.send(submit, 3, [], "error")
        first, last = (await response.text()).strip().split("\n\n")
    assert '"text":"abc"' in first
    assert '"code":"generation_failed"' in last
    assert await gateway.queue.next_finish() == submit.request_id


async def test_what_nobody_foresaw_is_a_500_and_logged_once(start_gateway: GatewayFactory) -> None:
    def broken(payload: Payload) -> list[Chunk]:
        raise ZeroDivisionError("a bug")

    gateway = await start_gateway(broken)
    with structlog.testing.capture_logs() as logs:
        status, error, headers = await refused(gateway, TEXT, {"model": "tiny", "prompt": "x"})
    assert (status, error["code"], error["type"]) == (500, "internal", "server_error")
    assert "bug" not in error["message"]
    (event,) = [event for event in logs if event["log_level"] == "error"]
    assert (event["event"], event["request_id"]) == ("request_failed", headers["x-treadle-request-id"])
