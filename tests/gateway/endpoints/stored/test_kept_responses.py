"""Conversations of the Responses API that go on by the id of the last answer, over real sockets and a real Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import Response
from redis.asyncio import Redis

from gateway.models.gguf_model import read_gguf
from shared.bus import streams
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import Answer, saying_each
from tests.gateway.tool_models import answering, output_ids, write_family

CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'
GET: dict[str, Any] = {
    "type": "function",
    "name": "get",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
KEEPS = {"keep_responses_s": 600}
KEYS = [
    {"key": "key-of-one-0123456789", "tenant": "one"},
    {"key": "key-of-two-0123456789", "tenant": "two"},
]

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path, redis: Redis) -> Starter:
    """A gateway that keeps answers, with a model that calls functions."""

    async def start(answer: Answer | None = None, **sections: Any) -> Gateway:
        family = write_family(tmp_path, "hermes")
        return await start_gateway(answer, models=[family], redis=redis, **({"gateway": KEEPS} | sections))

    return start


async def asked(gateway: Gateway, **fields: Any) -> Response:
    answer: Response = await gateway.openai.responses.create(**{"model": "hermes", "input": "hi"} | fields)
    return answer


async def prompt_of(gateway: Gateway, tmp_path: Path, **fields: Any) -> str:
    """What the model reads."""
    prompts: list[list[int]] = []
    answer = gateway.queue.answer
    assert answer is not None

    def noting(payload: Any) -> Any:
        prompts.append(payload.prompt_token_ids)
        return answer(payload)

    gateway.queue.answer = noting
    await asked(gateway, **fields)
    gateway.queue.answer = answer
    [prompt] = prompts
    return read_gguf(tmp_path / "hermes-False.gguf").tokenizer.written(prompt)


async def test_a_conversation_goes_on_as_if_all_of_it_had_been_sent(start: Starter, tmp_path: Path) -> None:
    gateway = await start(saying_each("Hello!"))
    first = await asked(gateway, input="Say hello.", instructions="brief")
    assert first.model_dump()["store"] is True
    second = await asked(gateway, input="Again.", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    named = await prompt_of(gateway, tmp_path, input="And again.", previous_response_id=second.id, instructions="loud")
    sent = await prompt_of(
        gateway,
        tmp_path,
        instructions="loud",
        input=[
            {"role": "user", "content": "Say hello."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "Again."},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "And again."},
        ],
    )
    assert named == sent
    assert "brief" not in named, "instructions are a request's own"


async def test_the_result_of_a_call_finds_the_call(start: Starter, tmp_path: Path) -> None:
    gateway = await start(saying_each(CALL))
    first = await asked(gateway, tools=[GET])
    call = first.output[0]
    assert call.type == "function_call"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    named = await prompt_of(gateway, tmp_path, input=[result], previous_response_id=first.id, tools=[GET])
    whole = [{"role": "user", "content": "hi"}, call.model_dump(exclude_none=True), result]
    assert named == await prompt_of(gateway, tmp_path, input=whole, tools=[GET])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (CALL[:50], "length"),  # within the arguments
        (CALL.replace('"Paris"', '{"a": ' * 64 + "1" + "}" * 64), "stop"),
        (CALL.replace("Paris", "\\ud800"), "stop"),
    ],
)
async def test_an_answer_is_gone_on_from_whose_call_no_request_may_have(start: Starter, text: str, reason: str) -> None:
    gateway = await start(answering(output_ids(text), finish_reason=reason))
    first = await asked(gateway, tools=[GET])
    assert first.output[0].type == "function_call"
    assert (await gateway.openai.responses.retrieve(first.id)).output == first.output
    second = await asked(gateway, input="go on", tools=[GET], previous_response_id=first.id)
    assert second.previous_response_id == first.id


async def test_a_stream_is_kept_before_its_last_event(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    async with gateway.openai.responses.stream(model="hermes", input="hi") as stream:
        async for event in stream:
            if event.type == "response.completed":
                again = await gateway.openai.responses.retrieve(event.response.id)
                assert again.output_text == "Hello!"
                return
    raise AssertionError("the stream had no end")


async def test_two_may_go_on_from_one_answer(start: Starter, tmp_path: Path) -> None:
    gateway = await start(saying_each("Hello!"))
    first = await asked(gateway)
    one = await prompt_of(gateway, tmp_path, input="one", previous_response_id=first.id)
    two = await prompt_of(gateway, tmp_path, input="two", previous_response_id=first.id)
    assert one.replace("one", "two") == two


async def test_an_answer_is_shown_and_removed(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    first = await asked(gateway, input="a")
    second = await asked(gateway, input="b", previous_response_id=first.id)
    assert (await gateway.openai.responses.retrieve(second.id)).model_dump() == second.model_dump()
    items = await gateway.openai.responses.input_items.list(second.id, limit=2, order="asc")
    texts = [part.text for item in items.data for part in getattr(item, "content", [])]
    assert texts == ["a", "Hello!"]
    [last] = (await gateway.openai.responses.input_items.list(second.id, order="asc", after=items.data[-1].id)).data
    assert [part.text for part in getattr(last, "content", [])] == ["b"]
    newest = await gateway.openai.responses.input_items.list(second.id, limit=1)
    assert newest.data[0].id == last.id
    assert newest.has_more
    await gateway.openai.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        await gateway.openai.responses.retrieve(first.id)
    assert (await asked(gateway, previous_response_id=second.id)).output_text == "Hello!", "what went on from it stays"


async def test_an_answer_that_is_not_to_be_kept_is_not(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    first = await asked(gateway, store=False)
    assert first.model_dump()["store"] is False
    for response_id in (first.id, "resp_none"):
        with pytest.raises(BadRequestError) as refusal:
            await asked(gateway, previous_response_id=response_id)
        assert (refusal.value.code, refusal.value.param) == ("previous_response_not_found", "previous_response_id")


async def test_a_request_is_checked_as_one_that_brings_all(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    first = await asked(gateway)
    with pytest.raises(BadRequestError) as refusal:
        await asked(gateway, previous_response_id=first.id, tool_choice="required")
    assert refusal.value.param == "tool_choice"


async def test_a_tenant_finds_its_own_alone(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"), keys=KEYS)
    one = {"authorization": f"Bearer {KEYS[0]['key']}"}
    two = {"authorization": f"Bearer {KEYS[1]['key']}"}
    async with gateway.http.post("/v1/responses", json={"model": "hermes", "input": "hi"}, headers=one) as answer:
        response_id = (await answer.json())["id"]
    body = {"model": "hermes", "input": "hi", "previous_response_id": response_id}
    for headers, statuses in ((one, [200, 200, 200]), (two, [400, 404, 404])):
        found = []
        async with gateway.http.post("/v1/responses", json=body, headers=headers) as answer:
            found.append(answer.status)
        async with gateway.http.get(f"/v1/responses/{response_id}", headers=headers) as answer:
            found.append(answer.status)
        async with gateway.http.get(f"/v1/responses/{response_id}/input_items", headers=headers) as answer:
            found.append(answer.status)
        assert found == statuses
    async with gateway.http.delete(f"/v1/responses/{response_id}", headers=two) as answer:
        assert answer.status == 404
    async with gateway.http.delete(f"/v1/responses/{response_id}", headers=one) as answer:
        assert await answer.json() == {"id": response_id, "object": "response", "deleted": True}


async def test_without_the_setting_nothing_is_kept(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"), gateway={})
    first = await asked(gateway, store=True)
    assert first.model_dump()["store"] is False
    with pytest.raises(NotFoundError, match="keep_responses_s"):
        await gateway.openai.responses.retrieve(first.id)
    with pytest.raises(BadRequestError, match="use 'input'"):
        await asked(gateway, previous_response_id=first.id)


async def test_what_cannot_be_kept_is_answered_and_counted(start: Starter, redis: Redis) -> None:
    gateway = await start(saying_each("Hello!"))
    await redis.set(streams.RESPONSES, "no index")
    answer = await asked(gateway)
    assert answer.output_text == "Hello!"
    assert gateway.metric("treadle_unkept_responses_total") == 1
