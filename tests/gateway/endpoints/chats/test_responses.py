"""The Responses API over a real socket, by OpenAI's own client: answers, streams, calls, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseErrorEvent,
    ResponseFailedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
)
from pydantic import BaseModel

from gateway.models.gguf_model import read_gguf
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.endpoints.test_reasoning import HYBRID
from tests.gateway.memory_queue import Answer, saying, saying_each
from tests.gateway.tiny import write_model
from tests.gateway.tool_models import MAX_MODEL_LEN, write_family

GET: dict[str, Any] = {
    "type": "function",
    "name": "get",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model that calls functions, and one that thinks."""

    async def start(answer: Answer | None = None) -> Gateway:
        hybrid = write_model(tmp_path / "hybrid.gguf", template=HYBRID, context_length=MAX_MODEL_LEN)
        models = [write_family(tmp_path, "hermes"), {"name": "hybrid", "source": str(hybrid)}]
        return await start_gateway(answer, models=models)

    return start


async def asked(gateway: Gateway, **fields: Any) -> Response:
    body: dict[str, Any] = {"model": "hermes", "input": "hi"} | fields
    answer: Response = await gateway.openai.responses.create(**body)
    return answer


async def test_an_answer_in_one_piece(start: Starter) -> None:
    answer = await asked(await start(saying_each("Hello!")), instructions="brief", temperature=0)
    assert answer.output_text == "Hello!"
    assert (answer.status, answer.instructions, answer.temperature) == ("completed", "brief", 0)
    assert answer.id.startswith("resp_")
    assert answer.usage is not None
    assert answer.usage.output_tokens == 7  # with the one that ends it
    assert answer.usage.total_tokens == answer.usage.input_tokens + 7


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_a_stream_adds_up_to_the_answer(start: Starter, size: int) -> None:
    gateway = await start(saying_each(f"Let me see. {CALL}", size=size))
    async with gateway.openai.responses.stream(model="hermes", input="hi", tools=[GET]) as stream:  # type: ignore[list-item]
        kinds = [event.type async for event in stream]
        answer = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert answer.output_text == "Let me see."
    call = answer.output[1]
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("get", '{"city": "Paris"}')
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


async def test_the_last_event_of_a_stream_is_the_last_line(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    async with gateway.http.post("/v1/responses", json={"model": "hermes", "input": "hi", "stream": True}) as response:
        assert response.content_type == "text/event-stream"
        lines = (await response.text()).splitlines()
    assert lines[0] == "event: response.created"
    assert [line for line in lines if line.startswith("event: ")][-1] == "event: response.completed"
    assert "[DONE]" not in "".join(lines)


async def test_thoughts_are_an_item(start: Starter) -> None:
    answer = await asked(await start(saying_each("<think>It greets.</think>Hello!")), model="hybrid")
    thoughts, message = answer.output
    assert isinstance(thoughts, ResponseReasoningItem)
    assert thoughts.content is not None
    assert thoughts.content[0].text == "It greets."
    assert isinstance(message, ResponseOutputMessage)
    assert answer.output_text == "Hello!"


async def test_a_model_may_be_kept_from_thinking(start: Starter, tmp_path: Path) -> None:
    gateway = await start()
    body = {"model": "hybrid", "input": "hi", "reasoning": {"effort": "none"}}
    async with sending(gateway.http.post("/v1/responses", json=body)):
        submit = await gateway.queue.next_submit()
        prompt = gateway.queue.payloads[submit.request_id].prompt_token_ids
    assert read_gguf(tmp_path / "hybrid.gguf").tokenizer.written(prompt).endswith("[assistant]<think>\n\n</think>\n\n")


async def test_a_conversation_goes_on_with_the_items_of_the_answer(start: Starter, tmp_path: Path) -> None:
    """What an answer's items say comes back to the model's template; the client adds what the call has given."""
    gateway = await start(saying_each(f"<think>It asks.</think>So. {CALL}"))
    answer = await asked(gateway, model="hybrid", tools=[GET])
    await gateway.queue.next_submit()
    call = answer.output[-1]
    assert isinstance(call, ResponseFunctionToolCall)
    items: list[Any] = [
        {"role": "user", "content": "hi"},
        *(item.model_dump() for item in answer.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
    ]
    body = {"model": "hybrid", "input": items}
    gateway.queue.answer = None
    async with sending(gateway.http.post("/v1/responses", json=body)):
        submit = await gateway.queue.next_submit()
        prompt = gateway.queue.payloads[submit.request_id].prompt_token_ids
    text = read_gguf(tmp_path / "hybrid.gguf").tokenizer.written(prompt)
    assert text == "[user]hi[assistant]<think>It asks.</think>So.<tool_call>get[tool]rain[assistant]"


class City(BaseModel):
    """What an answer is read as."""

    name: str


async def test_a_schema_holds_the_answer(start: Starter) -> None:
    constraints = []

    def answer(payload: Payload) -> Sequence[Chunk]:
        constraints.append(payload.sampling.constraint)
        return saying('{"name":"Paris"}')(payload)

    gateway = await start(answer)
    parsed = await gateway.openai.responses.parse(model="hermes", input="hi", text_format=City)
    assert parsed.output_parsed == City(name="Paris")
    (constraint,) = constraints
    assert constraint is not None
    assert json.loads(constraint.text)["required"] == ["name"]


async def test_a_limit_makes_it_incomplete(start: Starter) -> None:
    answer = await asked(await start(saying("Hello!")), max_output_tokens=4)
    assert (answer.status, answer.output_text) == ("incomplete", "Hell")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_a_stream_that_fails_ends_with_the_reason(start: Starter) -> None:
    gateway = await start()

    async def events() -> list[Any]:
        stream: AsyncIterator[Any] = await gateway.openai.responses.create(model="hermes", input="hi", stream=True)
        return [event async for event in stream]

    reading = asyncio.create_task(events())
    submit = await gateway.queue.next_submit()
    await gateway.queue.send(submit, 0, list(b"so f"))
    await gateway.queue.send(submit, 4, [], "error")
    *_, error, failed = await reading
    assert isinstance(error, ResponseErrorEvent)
    assert error.code == "generation_failed"
    assert isinstance(failed, ResponseFailedEvent)
    assert (failed.response.status, failed.response.output_text) == ("failed", "so f")


async def test_refusals_name_the_fields_of_this_api(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    with pytest.raises(NotFoundError):
        await asked(gateway, model="none")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"input": "a" * (MAX_MODEL_LEN + 1)}, "input"),
        ({"max_output_tokens": MAX_MODEL_LEN}, "max_output_tokens"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"$ref": "#/none"}}}},
            "text.format",
        ),
        (
            {"tools": [GET | {"parameters": {"$ref": "#/none"}}], "tool_choice": "required"},
            "tools[0].parameters",
        ),
    ]
    for fields, param in cases:
        with pytest.raises(BadRequestError) as refusal:
            await asked(gateway, **fields)
        assert refusal.value.param == param
        assert "response_format" not in refusal.value.message


async def test_events_of_the_client_are_typed(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    stream: AsyncIterator[Any] = await gateway.openai.responses.create(model="hermes", input="hi", stream=True)
    events = [event async for event in stream]
    assert isinstance(events[-1], ResponseCompletedEvent)
    assert events[-1].response.output_text == "Hello!"


# --- logprobs ---------------------------------------------------------------------------------------------------------

LOGPROBS = ["message.output_text.logprobs"]
THOUGHT = "<think>\nHm.\n</think>\n\nNo!"


def told(logprobs: Any) -> list[tuple[str, float, int]]:
    return [(one.token, one.logprob, len(one.top_logprobs)) for one in logprobs or []]


def text_of(answer: Response) -> ResponseOutputText:
    """Of its last item, a message."""
    message = answer.output[-1]
    assert isinstance(message, ResponseOutputMessage)
    (part,) = message.content
    assert isinstance(part, ResponseOutputText)
    return part


NO = [("N", -78.0, 2), ("o", -111.0, 2), ("!", -33.0, 2)]
"""As these nodes draw: a token's logprob is its id below zero."""


@pytest.mark.parametrize("size", [1, 4, 100])
async def test_logprobs_are_of_the_text_s_tokens_alone(start: Starter, size: int) -> None:
    gateway = await start(saying_each(THOUGHT, size=size))
    answer = await asked(gateway, model="hybrid", include=LOGPROBS, top_logprobs=2)
    assert answer.top_logprobs == 2
    assert isinstance(answer.output[0], ResponseReasoningItem)
    part = text_of(answer)
    assert (part.text, told(part.logprobs)) == ("No!", NO)


async def test_streamed_deltas_have_theirs_and_the_end_has_all(start: Starter) -> None:
    gateway = await start(saying_each(THOUGHT, size=1))
    body: dict[str, Any] = {"model": "hybrid", "input": "hi", "stream": True, "include": LOGPROBS, "top_logprobs": 2}
    stream: AsyncIterator[Any] = await gateway.openai.responses.create(**body)
    events = [event async for event in stream]
    deltas = [event for event in events if isinstance(event, ResponseTextDeltaEvent)]
    assert "".join(event.delta for event in deltas) == "No!"
    assert [one for event in deltas for one in told(event.logprobs)] == NO
    (done,) = (event for event in events if isinstance(event, ResponseTextDoneEvent))
    assert told(done.logprobs) == NO
    assert isinstance(events[-1], ResponseCompletedEvent)
    assert told(text_of(events[-1].response).logprobs) == NO


async def test_without_being_asked_there_are_none(start: Starter) -> None:
    answer = await asked(await start(saying_each("No!")))
    assert text_of(answer).logprobs is None
