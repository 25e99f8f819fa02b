"""Functions with a real, small model: what is asked for is what comes, whatever it would rather say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.e2e.cluster import Cluster

QUESTION = [{"role": "user", "content": "What is the weather like in Paris today?"}]
CITY = {"type": "string", "enum": ["Berlin", "Paris", "Rome"]}


def function(name: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


WEATHER = function("get_weather", city=CITY, num_days={"type": "integer", "minimum": 1, "maximum": 9})
TIME = function("get_time", city=CITY)
NAMED = {"type": "function", "function": {"name": "get_weather"}}


async def ask(client: AsyncOpenAI, model: str, **fields: Any) -> Any:
    body: dict[str, Any] = {"model": model, "messages": QUESTION, "max_tokens": 200, "temperature": 0} | fields
    return await client.chat.completions.create(**body)


def calls_of(answer: ChatCompletion, choice: int = 0) -> list[ChatCompletionMessageFunctionToolCall]:
    calls = answer.choices[choice].message.tool_calls or []
    return [call for call in calls if isinstance(call, ChatCompletionMessageFunctionToolCall)]


def check_weather(arguments: str) -> None:
    found = json.loads(arguments)
    assert sorted(found) == ["city", "num_days"]
    assert found["city"] in CITY["enum"]
    assert 1 <= found["num_days"] <= 9


async def test_a_conversation_of_items_goes_on_with_what_a_call_has_given(
    client: AsyncOpenAI, cluster: Cluster
) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    body: dict[str, Any] = {"model": cluster.models[0], "max_output_tokens": 200, "temperature": 0, "tools": [tool]}
    items: list[Any] = list(QUESTION)
    first = body | {"input": items, "tool_choice": {"type": "function", "name": "get_weather"}}
    called: Response = await client.responses.create(**first)
    (call,) = called.output
    assert isinstance(call, ResponseFunctionToolCall)
    check_weather(call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees and sunny"}
    second = body | {"input": [*items, call, result], "tool_choice": "none"}
    answer: Response = await client.responses.create(**second)
    assert answer.output_text
    assert called.usage is not None
    assert answer.usage is not None
    assert answer.usage.input_tokens < called.usage.input_tokens, "it is not told of functions any more"


async def test_a_named_function_is_called_streamed_or_not(client: AsyncOpenAI, cluster: Cluster) -> None:
    for model in cluster.models:
        fields = {"tools": [WEATHER, TIME], "tool_choice": NAMED}
        whole = await ask(client, model, **fields)
        (call,) = calls_of(whole)
        assert call.function.name == "get_weather"
        check_weather(call.function.arguments)
        assert (whole.choices[0].finish_reason, whole.choices[0].message.content) == ("tool_calls", None)
        chunks = [chunk async for chunk in await ask(client, model, **fields, stream=True)]
        pieces = [one.function for chunk in chunks for one in chunk.choices[0].delta.tool_calls or []]
        assert [one.name for one in pieces if one.name] == ["get_weather"]
        assert "".join(one.arguments or "" for one in pieces) == call.function.arguments
        assert len(pieces) > 1, "arguments come as they are drawn: several tokens a step, where they can be guessed"
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


async def test_one_of_several_is_called_where_that_is_required(client: AsyncOpenAI, cluster: Cluster) -> None:
    answer = await ask(
        client,
        cluster.models[0],
        tools=[WEATHER, TIME],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=1,
        seed=5,
        n=3,
    )
    for choice in range(3):
        (call,) = calls_of(answer, choice)
        assert call.function.name in ("get_weather", "get_time")
        assert json.loads(call.function.arguments)["city"] in CITY["enum"]
    assert len({call.id for choice in range(3) for call in calls_of(answer, choice)}) == 3


async def test_a_result_is_read_in_the_next_turn(client: AsyncOpenAI, cluster: Cluster) -> None:
    first = await ask(client, cluster.models[0], tools=[WEATHER], tool_choice=NAMED)
    (call,) = calls_of(first)
    turn = first.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "It is sunny in Paris."}
    fields: dict[str, Any] = {"messages": [*QUESTION, turn, result], "tools": [WEATHER], "tool_choice": "none"}
    either = {"structured_outputs": {"choice": ["rainy", "sunny"]}}
    answer = await ask(client, cluster.models[0], **fields, extra_body=either)
    assert answer.choices[0].message.content == "sunny"


async def test_functions_that_need_not_be_called_leave_the_answer_free(client: AsyncOpenAI, cluster: Cluster) -> None:
    answer = await ask(client, cluster.models[0], tools=[WEATHER], max_tokens=24)
    (choice,) = answer.choices
    assert choice.message.content or choice.message.tool_calls


async def test_calls_on_both_models_beside_free_answers(client: AsyncOpenAI, cluster: Cluster) -> None:
    """Masks belong to their own rows of a batch."""
    free = [ask(client, model, max_tokens=24) for model in cluster.models for _ in range(2)]
    forced = [ask(client, model, tools=[WEATHER], tool_choice=NAMED) for model in cluster.models for _ in range(2)]
    answers = await asyncio.gather(*free, *forced)
    for answer in answers[:4]:
        assert answer.choices[0].message.content
        assert not calls_of(answer)
    for answer in answers[4:]:
        (call,) = calls_of(answer)
        check_weather(call.function.arguments)


async def test_an_answer_is_one_of_the_choices(client: AsyncOpenAI, cluster: Cluster) -> None:
    choices = ["sunny", "cloudy", "rainy"]
    answer = await ask(client, cluster.models[0], extra_body={"structured_outputs": {"choice": choices}})
    assert answer.choices[0].message.content in choices
    assert answer.choices[0].finish_reason == "stop"


async def test_an_answer_is_a_word_of_a_grammar(client: AsyncOpenAI, cluster: Cluster) -> None:
    structured = {"structured_outputs": {"grammar": 'start: "a" | "b" start "c"'}}
    answer = await ask(client, cluster.models[0], extra_body=structured, max_tokens=64)
    text = answer.choices[0].message.content
    num_open = text.index("a")
    assert text == "b" * num_open + "a" + "c" * num_open
    assert answer.choices[0].finish_reason == "stop"
