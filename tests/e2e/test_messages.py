"""Anthropic's own client at a cluster with a real, small model: answers, streams, tools, counts."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic

from tests.e2e.cluster import Cluster

QUESTION: Any = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: Any = {"extra_body": {"temperature": 0}}  # newer clients have no word of their own for it
WEATHER: Any = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Berlin", "Paris"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


async def test_an_answer_streamed_or_not_and_its_count(cluster: Cluster) -> None:
    body: dict[str, Any] = {"model": cluster.models[0], "messages": QUESTION}
    drawn: dict[str, Any] = {"max_tokens": 24, **GREEDY}
    async with AsyncAnthropic(base_url=cluster.url, api_key="none", max_retries=0) as client:
        count = await client.messages.count_tokens(**body)
        whole = await client.messages.create(**body, **drawn)
        async with client.messages.stream(**body, **drawn) as stream:
            streamed = await stream.get_final_message()
    (text,) = whole.content
    assert text.type == "text"
    assert "Paris" in text.text
    assert [block.to_dict() for block in streamed.content] == [text.to_dict()]
    for message in (whole, streamed):
        usage = message.usage
        assert (message.stop_reason, usage.output_tokens) == ("end_turn", whole.usage.output_tokens)
        assert usage.cache_read_input_tokens is not None
        assert usage.input_tokens + usage.cache_read_input_tokens == count.input_tokens


async def test_a_tool_is_used_and_its_result_is_read(cluster: Cluster) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather like in Paris today?"}]
    fields: dict[str, Any] = {"model": cluster.models[1], "max_tokens": 100, "tools": [WEATHER], **GREEDY}
    async with AsyncAnthropic(base_url=cluster.url, api_key="none", max_retries=0) as client:
        choice: Any = {"type": "tool", "name": "get_weather"}
        async with client.messages.stream(messages=asked, tool_choice=choice, **fields) as stream:
            message = await stream.get_final_message()
        (call,) = message.content
        assert call.type == "tool_use"
        assert call.input in ({"city": "Berlin"}, {"city": "Paris"})
        assert message.stop_reason == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "It is sunny in Paris."}
        turns: Any = [*asked, message.to_param(), {"role": "user", "content": [result]}]
        answer = await client.messages.create(messages=turns, tool_choice={"type": "none"}, **fields)
    assert [block.type for block in answer.content] == ["text"]
