"""Anthropic's Messages API over a real socket, by Anthropic's own client: answers, streams, tools, thoughts, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import (
    APIStatusError,
    AsyncAnthropic,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    RateLimitError,
)
from anthropic.types import Message
from pydantic import BaseModel
from structlog.testing import capture_logs

from gateway.models.gguf_model import read_gguf
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.endpoints.test_reasoning import HYBRID, THINKER
from tests.gateway.http_client import http_client
from tests.gateway.memory_queue import Answer, saying, saying_each
from tests.gateway.tiny import write_model
from tests.gateway.tool_models import MAX_MODEL_LEN, write_family

GET: dict[str, Any] = {
    "name": "get",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'
HI: list[Any] = [{"role": "user", "content": "hi"}]
SWITCHED = "{{ '[' ~ thinking ~ ']' }}" + HYBRID.replace("enable_thinking", "thinking")
"""As DeepSeek-V3.1's: another name of the same switch."""

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model that calls functions, and some that think."""

    async def start(answer: Answer | None = None, **sections: Any) -> Gateway:
        templates = {"hybrid": HYBRID, "thinker": THINKER, "switched": SWITCHED}
        paths = {
            name: write_model(tmp_path / f"{name}.gguf", template=template, context_length=MAX_MODEL_LEN)
            for name, template in templates.items()
        }
        models = [write_family(tmp_path, "hermes"), *({"name": name, "source": str(at)} for name, at in paths.items())]
        return await start_gateway(answer, models=models, **sections)

    return start


def client_of(gateway: Gateway, key: str = "none") -> AsyncAnthropic:
    return AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0, http_client=http_client())


async def asked(gateway: Gateway, **fields: Any) -> Message:
    body: dict[str, Any] = {"model": "hermes", "max_tokens": 200, "messages": HI} | fields
    async with client_of(gateway) as client:
        message: Message = await client.messages.create(**body)
    return message


def content_of(message: Message) -> list[dict[str, Any]]:
    """Without ids of calls, which are each request's own."""
    return [{name: one for name, one in block.to_dict().items() if name != "id"} for block in message.content]


async def streamed(gateway: Gateway, **fields: Any) -> tuple[list[str], Message]:
    """The types of all events, and the message that the client makes of them."""
    body: dict[str, Any] = {"model": "hermes", "max_tokens": 200, "messages": HI} | fields
    async with client_of(gateway) as client, client.messages.stream(**body) as stream:
        types = [str(event.type) async for event in stream]
        return types, await stream.get_final_message()


async def prompt_of(gateway: Gateway, folder: Path, **fields: Any) -> str:
    """What a node would get."""
    body = {"model": "hybrid", "max_tokens": 9, "messages": HI} | fields
    async with sending(gateway.http.post("/v1/messages", json=body)):
        submit = await gateway.queue.next_submit()
        payload: Payload = gateway.queue.payloads[submit.request_id]
        return read_gguf(folder / f"{body['model']}.gguf").tokenizer.written(payload.prompt_token_ids)


async def refused(gateway: Gateway, path: str = "/v1/messages", **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "hermes", "max_tokens": 9, "messages": HI} | fields
    async with gateway.http.post(path, json=body) as response:
        return response.status, await response.json()


async def test_an_answer(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    message = await asked(gateway)
    assert message.to_dict() == {
        "type": "message",
        "id": message.id,
        "role": "assistant",
        "model": "hermes",
        "content": [{"type": "text", "text": "Hello!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": message.usage.input_tokens, "output_tokens": len("Hello!") + 1},
    }
    assert message.id == f"msg_{message._request_id}"
    assert message.usage.input_tokens > len("hi")


async def test_thoughts_text_and_a_call_by_the_client(start: Starter) -> None:
    output = f"<think>hm</think>I look.{CALL}"
    fields = {"model": "hybrid", "tools": [GET]}
    whole = await asked(await start(saying(output)), **fields)
    types, message = await streamed(await start(saying(output)), **fields)
    for one in (whole, message):
        assert content_of(one) == [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "name": "get", "input": {"city": "Paris"}},
        ]
        assert (one.stop_reason, one.stop_sequence) == ("tool_use", None)
        assert one.usage.output_tokens == len(output) + 1
    assert message.usage == whole.usage
    assert (types[0], types[-1]) == ("message_start", "message_stop")
    assert types.count("content_block_start") == types.count("content_block_stop") == 3


async def test_the_conversation_goes_on_with_what_came(start: Starter, tmp_path: Path) -> None:
    gateway = await start(saying(f"<think>hm</think>I look.{CALL}"))
    message = await asked(gateway, model="hybrid", tools=[GET])
    call = message.content[-1]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    turns = [*HI, message.to_param(), {"role": "user", "content": [result, {"type": "text", "text": "and?"}]}]
    gateway = await start()
    prompt = await prompt_of(gateway, tmp_path, messages=json.loads(json.dumps(turns, default=_as_json)), system="s")
    said = "[assistant]<think>hm</think>I look.<tool_call>get"
    assert prompt == f"[system]s[user]hi{said}[tool]18 degrees[user]and?[assistant]"


def _as_json(block: BaseModel) -> Any:
    return block.model_dump(exclude_unset=True)


async def test_a_tool_that_has_to_be_used(start: Starter) -> None:
    gateway = await start(saying(CALL))
    _, message = await streamed(gateway, tools=[GET], tool_choice={"type": "tool", "name": "get"})
    (call,) = message.content
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris"}
    assert message.stop_reason == "tool_use"


async def test_a_stop_sequence_is_named(start: Starter) -> None:
    for one in (
        await asked(await start(saying("a b c")), stop_sequences=[" c", "b "]),
        (await streamed(await start(saying("a b c", size=1)), stop_sequences=[" c", "b "]))[1],
    ):
        assert (one.stop_reason, one.stop_sequence) == ("stop_sequence", "b ")
        assert [block.to_dict() for block in one.content] == [{"type": "text", "text": "a "}]


async def test_a_call_that_is_cut(start: Starter) -> None:
    fields: dict[str, Any] = {"tools": [GET], "max_tokens": len("so") + len(CALL[:55])}
    whole = await asked(await start(saying("so" + CALL)), **fields)
    assert (whole.stop_reason, [block.type for block in whole.content]) == ("max_tokens", ["text"])
    _, message = await streamed(await start(saying("so" + CALL)), **fields)
    assert (message.stop_reason, [block.type for block in message.content]) == ("max_tokens", ["text", "tool_use"])


class City(BaseModel):
    city: str


async def test_an_answer_of_a_schema(start: Starter) -> None:
    gateway = await start(saying('{"city": "Paris"}'))
    async with client_of(gateway) as client:
        answer = await client.messages.parse(model="hermes", max_tokens=99, messages=HI, output_format=City)
    assert answer.parsed_output == City(city="Paris")


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("hybrid", None, "[user]hi[assistant]"),
        ("hybrid", {"type": "adaptive"}, "[user]hi[assistant]"),
        ("hybrid", {"type": "disabled"}, "[user]hi[assistant]<think>\n\n</think>\n\n"),
        ("switched", {"type": "disabled"}, "[False][user]hi[assistant]<think>\n\n</think>\n\n"),
        ("switched", {"type": "adaptive"}, "[True][user]hi[assistant]"),
        ("thinker", {"type": "adaptive"}, "hi[assistant]<think>\n"),
    ],
)
async def test_whether_a_model_thinks(
    start: Starter, tmp_path: Path, model: str, thinking: dict[str, Any] | None, expected: str
) -> None:
    gateway = await start()
    assert await prompt_of(gateway, tmp_path, model=model, thinking=thinking) == expected


async def test_who_always_thinks_cannot_be_kept_from_it(start: Starter) -> None:
    gateway = await start()
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        fields: dict[str, Any] = {"model": "thinker", "thinking": {"type": "disabled"}}
        status, answer = await refused(gateway, path, **fields, **({"max_tokens": None} if "count" in path else {}))
        assert (status, answer["error"]["param"]) == (400, "thinking")
        assert answer["error"]["message"] == "the model 'thinker' cannot be kept from thinking"


async def test_who_never_thinks_is_asked_in_vain(start: Starter) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = await asked(await start(saying("Hello!")), max_tokens=1025, thinking=thinking)
    assert [block.type for block in message.content] == ["text"]


async def test_thoughts_may_be_left_out(start: Starter) -> None:
    fields: dict[str, Any] = {"model": "thinker", "thinking": {"type": "adaptive", "display": "omitted"}}
    for one in (
        await asked(await start(saying("hm</think>Hello!")), **fields),
        (await streamed(await start(saying("hm</think>Hello!")), **fields))[1],
    ):
        assert [block.to_dict() for block in one.content] == [
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "text", "text": "Hello!"},
        ]


async def test_a_count_is_that_of_the_request(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    fields: dict[str, Any] = {"model": "hermes", "messages": HI, "system": "be brief", "tools": [GET]}
    async with client_of(gateway) as client:
        count = await client.messages.count_tokens(**fields)
        message = await client.messages.create(max_tokens=5, **fields)
        shorter = await client.messages.count_tokens(**fields, tool_choice={"type": "none"})
        said: Any = {"role": "assistant", "content": "so"}
        open_end = await client.messages.count_tokens(model="hybrid", messages=[*HI, said])
    assert count.input_tokens == message.usage.input_tokens
    assert shorter.input_tokens < count.input_tokens
    assert open_end.input_tokens == len("[user]hi[assistant]so")


async def test_a_count_holds_a_slot(start: Starter) -> None:
    gateway = await start(gateway={"max_inflight": 1})
    async with sending(gateway.http.post("/v1/messages", json={"model": "hermes", "max_tokens": 5, "messages": HI})):
        await gateway.queue.next_submit()
        async with client_of(gateway) as client:
            with pytest.raises(RateLimitError) as caught:
                await client.messages.count_tokens(model="hermes", messages=HI)
    assert caught.value.response.headers["x-treadle-dropped-reason"] == "saturated"
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_errors_are_anthropic_s(start: Starter) -> None:
    gateway = await start()
    async with client_of(gateway) as client:
        with pytest.raises(NotFoundError) as unknown:
            await client.messages.create(model="nobody", max_tokens=5, messages=HI)
        with pytest.raises(BadRequestError) as wrong:
            await client.messages.create(model="hermes", max_tokens=5, messages=HI, stop_sequences=[""])
        with pytest.raises(BadRequestError) as long:
            await client.messages.create(model="hermes", max_tokens=9_999, messages=HI)
        with pytest.raises(NotFoundError) as nowhere:
            await client.get("/v1/messages/nowhere", cast_to=object)
    assert unknown.value.type == "not_found_error"
    assert unknown.value.request_id == unknown.value.response.headers["x-treadle-request-id"]
    assert unknown.value.body == {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": "the model 'nobody' does not exist; there are: hermes, hybrid, thinker, switched",
            "param": "model",
            "code": "model_not_found",
        },
        "request_id": unknown.value.request_id,
    }
    assert isinstance(wrong.value.body, dict)
    assert isinstance(long.value.body, dict)
    assert isinstance(nowhere.value.body, dict)
    assert wrong.value.body["error"]["param"] == "stop_sequences[0]"
    assert (long.value.body["error"]["param"], long.value.type) == ("max_tokens", "invalid_request_error")
    assert (nowhere.value.body["error"]["code"], nowhere.value.type) == ("not_found", "not_found_error")


@pytest.mark.parametrize(
    ("send", "status", "kind", "code"),
    [
        ({"data": b"{"}, 400, "invalid_request_error", "invalid_json"),
        (
            {"data": b"{}", "headers": {"content-encoding": "br"}},
            415,
            "invalid_request_error",
            "unsupported_media_type",
        ),
        ({"headers": {"expect": "a miracle"}}, 417, "invalid_request_error", "expectation_failed"),
        ({"data": b"x" * 9999}, 413, "request_too_large", "request_entity_too_large"),
    ],
)
async def test_whatever_is_wrong_is_told_in_that_shape(
    start: Starter, send: dict[str, Any], status: int, kind: str, code: str
) -> None:
    gateway = await start(gateway={"max_body_bytes": 4096})
    async with gateway.http.post("/v1/messages?beta=true", **{"data": b"{}"} | send) as response:
        answer = await response.json()
        assert (response.status, answer["type"], answer["error"]["type"]) == (status, "error", kind)
        assert answer["request_id"] == response.headers["x-treadle-request-id"]
        assert answer["error"]["code"] == code
    async with gateway.http.get("/v1/messages") as response:
        assert (response.status, (await response.json())["error"]["type"]) == (405, "invalid_request_error")
        assert response.headers["allow"] == "POST"


async def test_no_node_means_overloaded(start: Starter) -> None:
    gateway = await start()
    gateway.queue.is_down = True
    async with client_of(gateway) as client:
        with pytest.raises(APIStatusError) as caught:
            await client.messages.create(model="hermes", max_tokens=5, messages=HI)
    assert (caught.value.status_code, caught.value.type) == (503, "overloaded_error")
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_key_comes_as_anthropic_s_client_sends_it(start: Starter) -> None:
    gateway = await start(saying("Hello!"), keys=[{"key": "sk-secret", "tenant": "acme"}])
    body: dict[str, Any] = {"model": "hermes", "max_tokens": 50, "messages": HI}
    with capture_logs() as logs:
        async with client_of(gateway, "sk-secret") as client:
            assert (await client.messages.create(**body)).stop_reason == "end_turn"
            assert (await client.messages.count_tokens(model="hermes", messages=HI)).input_tokens
        async with client_of(gateway, "sk-wrong") as client:
            with pytest.raises(AuthenticationError) as caught:
                await client.messages.create(**body)
        async with gateway.http.get("/v1/models", headers={"X-Api-Key": "sk-secret"}) as response:
            assert response.status == 200
    assert caught.value.type == "authentication_error"
    assert [line["tenant"] for line in logs if line["event"] == "request_finished"] == ["acme"]
    assert not [line for line in logs if "sk-" in str(line)]


async def test_a_promise_may_be_asked_for(start: Starter) -> None:
    gateway = await start()
    async with sending(
        gateway.http.post(
            "/v1/messages", json={"model": "hermes", "max_tokens": 5, "messages": HI, "slo": {"ttft_s": 7.5}}
        )
    ):
        assert (await gateway.queue.next_submit()).slo.ttft_s == 7.5
    async with client_of(gateway) as client:
        with pytest.raises(BadRequestError, match="names no SLO class"):
            await client.messages.create(
                model="hermes",
                max_tokens=5,
                messages=HI,
                extra_headers={"x-treadle-slo": "gold"},
            )


async def test_a_stream_tells_what_was_cached_and_raises_where_it_fails(start: Starter) -> None:
    gateway = await start()
    async with client_of(gateway) as client:
        body: dict[str, Any] = {"model": "hermes", "max_tokens": 50, "messages": HI, "stream": True}
        asking = asyncio.ensure_future(client.messages.create(**body))
        submit = await gateway.queue.next_submit()
        await gateway.queue.send(submit, 0, list(b"so"), cached_tokens=16)
        events: AsyncIterator[Any] = aiter(await asking)
        begin, *others = [await anext(events) for _ in range(3)]
        assert begin.message.usage.to_dict() == {
            "input_tokens": begin.message.usage.input_tokens,
            "cache_read_input_tokens": 16,
            "output_tokens": 0,
        }
        assert [one.type for one in others] == ["content_block_start", "content_block_delta"]
        await gateway.queue.send(submit, 2, [], "error")
        with pytest.raises(APIStatusError) as caught:
            await anext(events)
    assert caught.value.type == "api_error"


async def test_an_answer_is_the_same_whole_and_streamed_however_it_comes(start: Starter) -> None:
    output = f"<think>h m</think>\n\nSo: {CALL}\n{CALL}"
    expected: list[dict[str, Any]] | None = None
    for size in (1, 1000):
        gateway, fields = await start(saying_each(output, size=size)), {"model": "hybrid", "tools": [GET]}
        for one in (await asked(gateway, **fields), (await streamed(gateway, **fields))[1]):
            expected = expected or content_of(one)
            assert content_of(one) == expected
    assert expected is not None
    assert [block["type"] for block in expected] == ["thinking", "text", "tool_use", "tool_use"]


async def test_an_answer_is_traced_as_a_chat(start: Starter) -> None:
    gateway = await start(saying("Hello!"))
    await asked(gateway)
    (span,) = gateway.spans.get_finished_spans()
    assert span.name == "chat hermes"


def chunks(payload: Payload) -> list[Chunk]:
    """One call and nothing else; a second one comes too."""
    return list(saying(CALL + CALL)(payload))


async def test_one_call_at_most_where_that_is_asked_for(start: Starter) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = await asked(await start(chunks), tools=[GET], tool_choice=choice)
    assert [block.type for block in message.content] == ["tool_use"]
