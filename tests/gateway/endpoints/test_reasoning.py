"""Models that think before they answer, over a real socket: thoughts and answer apart; what clients may set."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.models.gguf_model import read_gguf
from shared.messages.requests.payload import Payload
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import Answer, saying_each
from tests.gateway.tiny import ALPHABET, MERGED, write_model
from tests.gateway.tool_models import HARMONY, MARK, MAX_MODEL_LEN, answering, output_ids, tool

HYBRID = """{%- for message in messages %}
    {{- '[' + message.role + ']' }}
    {%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
    {{- message.content }}
    {%- for call in message.tool_calls or [] %}{{ '<tool_call>' + call.function.name }}{% endfor %}
{%- endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}"""
"""As Qwen3's: the model opens its thoughts itself, unless it is told to have none."""
THINKER = "{% for message in messages %}{{ message.content }}{% endfor %}{{ '[assistant]<think>\\n' }}{# </think> #}"
"""As DeepSeek-R1's: thoughts are open already."""
HARMONY_MARKS = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>"]
HI = [{"role": "user", "content": "hi"}]
OUTPUT = "<think>\nIt greets. \n</think>\n\nHello!\n"
CALL = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'

Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model of either kind, and one whose mark of thoughts is a control token."""

    async def start(answer: Answer | None = None, **fields: Any) -> Gateway:
        kinds = [*[TokenType.NORMAL] * 256, *[TokenType.CONTROL] * 3, *[TokenType.NORMAL] * len(MERGED)]
        tokens = [*ALPHABET, "<|im_end|>", "<|im_start|>", "<think>", *MERGED]
        paths = {
            "hybrid": write_model(tmp_path / "hybrid.gguf", template=HYBRID, context_length=MAX_MODEL_LEN),
            "thinker": write_model(tmp_path / "thinker.gguf", template=THINKER, context_length=MAX_MODEL_LEN),
            "marked": write_model(
                tmp_path / "marked.gguf", template=HYBRID, context_length=MAX_MODEL_LEN, tokens=tokens, kinds=kinds
            ),
        }
        models = [{"name": name, "source": str(path)} | fields for name, path in paths.items()]
        return await start_gateway(answer, models=models)

    return start


async def message(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    """The whole turn, as JSON has it."""
    body = {"model": "hybrid", "messages": HI} | fields
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
    turn: dict[str, Any] = answer["choices"][0]["message"]
    return turn


async def streamed(gateway: Gateway, **fields: Any) -> tuple[str, str]:
    """Thoughts and answer of a stream."""
    body: dict[str, Any] = {"model": "hybrid", "messages": HI, "stream": True} | fields
    stream: AsyncIterator[Any] = await gateway.openai.chat.completions.create(**body)
    deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    thoughts = [(one.model_extra or {}).get("reasoning_content") or "" for one in deltas]
    assert not any(thought and one.content for thought, one in zip(thoughts, deltas, strict=True))
    return "".join(thoughts), "".join(one.content or "" for one in deltas)


async def prompt_of(gateway: Gateway, folder: Path, **fields: Any) -> str:
    body = {"model": "hybrid", "messages": HI} | fields
    async with sending(gateway.http.post("/v1/chat/completions", json=body)):
        submit = await gateway.queue.next_submit()
        payload: Payload = gateway.queue.payloads[submit.request_id]
        return read_gguf(folder / "hybrid.gguf").tokenizer.written(payload.prompt_token_ids)


async def refusal(gateway: Gateway, **fields: Any) -> tuple[str, str]:
    body = {"model": "hybrid", "messages": HI} | fields
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        error = (await response.json())["error"]
        assert response.status == 400
    return error["param"], error["message"]


async def test_thoughts_stand_beside_the_answer(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT))
    assert await message(gateway) == {
        "role": "assistant",
        "content": "Hello!\n",
        "refusal": None,
        "reasoning_content": "It greets.",
    }


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_a_stream_brings_thoughts_before_the_answer(start: Starter, size: int) -> None:
    gateway = await start(saying_each(OUTPUT, size=size))
    assert await streamed(gateway) == ("It greets.", "Hello!\n")
    assert await streamed(gateway, stream_options={"include_usage": True, "continuous_usage_stats": False}) == (
        "It greets.",
        "Hello!\n",
    )


async def test_who_does_not_think_just_answers(start: Starter) -> None:
    gateway = await start(saying_each("Hello!"))
    assert await message(gateway) == {"role": "assistant", "content": "Hello!", "refusal": None}
    assert await streamed(gateway) == ("", "Hello!")


async def test_an_answer_that_ends_among_thoughts_has_no_content(start: Starter) -> None:
    gateway = await start(answering(output_ids("<think>On and on"), finish_reason="length"))
    turn = await message(gateway)
    assert (turn["content"], turn["reasoning_content"]) == (None, "On and on")


async def test_a_prompt_may_have_opened_thoughts(start: Starter) -> None:
    gateway = await start(saying_each("It greets.\n</think>\n\nHello!"))
    turn = await message(gateway, model="thinker")
    assert (turn["content"], turn["reasoning_content"]) == ("Hello!", "It greets.")
    assert await streamed(gateway, model="thinker") == ("It greets.", "Hello!")


async def test_marks_that_are_control_tokens_are_seen(start: Starter) -> None:
    gateway = await start(answering([MARK, *output_ids("It greets.</think>Hello!")]))
    turn = await message(gateway, model="marked")
    assert (turn["content"], turn["reasoning_content"]) == ("Hello!", "It greets.")


async def test_each_choice_has_thoughts_of_its_own(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT, "Hm.", "<think>no</think>", size=2))
    body = {"model": "hybrid", "messages": HI, "n": 3}
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        choices = (await response.json())["choices"]
    turns = [(one["message"]["content"], one["message"].get("reasoning_content")) for one in choices]
    assert turns == [("Hello!\n", "It greets."), ("Hm.", None), (None, "no")]


async def test_calls_come_behind_thoughts(start: Starter) -> None:
    """What looks like a call among thoughts is none."""
    gateway = await start(answering(output_ids(f"<think>{CALL}?</think>\nI look.\n{CALL}"), size=5))
    turn = await message(gateway, tools=[tool("get")])
    assert (turn["content"], turn["reasoning_content"]) == ("I look.", f"{CALL}?")
    assert [call["function"]["name"] for call in turn["tool_calls"]] == ["get"]
    assert await streamed(gateway, tools=[tool("get")]) == (f"{CALL}?", "I look.")


FORM = {"response_format": {"type": "json_object"}}


async def test_a_form_is_the_answer_s_and_thoughts_come_before_it(start: Starter) -> None:
    gateway = await start(saying_each("Hm.</think>{}"))
    turn = await message(gateway, model="thinker", **FORM)
    assert (turn["content"], turn["reasoning_content"]) == ("{}", "Hm.")


async def test_what_may_stand_before_a_form(start: Starter) -> None:
    gateway = await start()
    assert await lead_of(gateway, model="thinker") == (
        "lead: thoughts SPACE?\nthoughts[lazy]: /(?s:.*)<\\/think>/\nSPACE: /[ \\t\\r\\n]{1,64}/\n"
    )
    assert (await lead_of(gateway, model="hybrid")).startswith('lead: ("<think>" thoughts SPACE?)?\n')
    assert (await lead_of(gateway, model="marked")).startswith("lead: (<[258]> thoughts SPACE?)?\n")
    assert await lead_of(gateway, model="hybrid", chat_template_kwargs={"enable_thinking": False}) == ""
    assert await lead_of(gateway, model="hybrid", reasoning_effort="none") == ""


async def lead_of(gateway: Gateway, **fields: Any) -> str:
    body = {"messages": HI} | FORM | fields
    async with sending(gateway.http.post("/v1/chat/completions", json=body)):
        submit = await gateway.queue.next_submit()
        constraint = gateway.queue.payloads[submit.request_id].sampling.constraint
    assert constraint is not None
    return constraint.lead


async def test_logprobs_are_those_of_all_tokens(start: Starter) -> None:
    gateway = await start(saying_each("<think>a</think>b"))
    body = {"model": "hybrid", "messages": HI, "logprobs": True}
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        (choice,) = (await response.json())["choices"]
    assert len(choice["logprobs"]["content"]) == len("<think>a</think>b") + 1  # the end of the answer


async def usage_of(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    body = {"model": "hybrid", "messages": HI} | fields
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        usage: dict[str, Any] = (await response.json())["usage"]
    return usage


THOUGHTS = "<think>\nIt greets. \n</think>"
"""Of `OUTPUT`; a token of these models is a byte."""


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_tokens_of_thoughts_are_counted_however_they_come(start: Starter, size: int) -> None:
    gateway = await start(saying_each(OUTPUT, size=size))
    usage = await usage_of(gateway)
    assert usage["completion_tokens"] == len(OUTPUT) + 1, "and the end"
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len(THOUGHTS)}


async def test_those_of_all_choices_are_counted(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT, "Hm.", "<think>no</think>", size=2))
    found = (await usage_of(gateway, n=3))["completion_tokens_details"]
    assert found == {"reasoning_tokens": len(THOUGHTS) + len("<think>no</think>")}


async def test_a_mark_that_is_a_control_token_is_one(start: Starter) -> None:
    gateway = await start(answering([MARK, *output_ids("It greets.</think>Hello!")]))
    found = (await usage_of(gateway, model="marked"))["completion_tokens_details"]
    assert found == {"reasoning_tokens": 1 + len(output_ids("It greets.</think>"))}


async def test_thoughts_that_a_stop_text_ends_are_all_of_the_answer(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT))
    usage = await usage_of(gateway, stop="greets")
    num_tokens = len("<think>\nIt greets")
    assert (usage["completion_tokens"], usage["completion_tokens_details"]) == (
        num_tokens,
        {"reasoning_tokens": num_tokens},
    )


async def test_streams_count_them_too(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT, size=1))
    options = {"include_usage": True, "continuous_usage_stats": True}
    body: dict[str, Any] = {"model": "hybrid", "messages": HI, "stream": True, "stream_options": options}
    stream: AsyncIterator[Any] = await gateway.openai.chat.completions.create(**body)
    usages = [chunk.usage async for chunk in stream if chunk.usage]
    details = [one.completion_tokens_details for one in usages]
    found = [one.reasoning_tokens if one is not None else None for one in details]
    assert found[-1] == len(THOUGHTS)
    assert found == sorted(one for one in found if one is not None), "in every chunk, from 0 on"
    assert all(
        (one.reasoning_tokens or 0) <= of.completion_tokens for one, of in zip(details, usages, strict=True) if one
    )


async def test_who_does_not_think_has_none_and_where_nobody_looks_nothing_is_said(start: Starter) -> None:
    gateway = await start(saying_each("{}"))
    assert (await usage_of(gateway))["completion_tokens_details"] == {"reasoning_tokens": 0}
    kwargs = {"enable_thinking": False}
    assert (await usage_of(gateway, chat_template_kwargs=kwargs, **FORM))["completion_tokens_details"] == {
        "reasoning_tokens": 0
    }
    gateway = await start(saying_each(OUTPUT), reasoning="none")
    assert "completion_tokens_details" not in await usage_of(gateway)


async def test_marks_are_text_where_the_configuration_says_so(start: Starter) -> None:
    gateway = await start(saying_each(OUTPUT), reasoning="none")
    assert (await message(gateway))["content"] == OUTPUT


async def test_a_template_is_told_what_clients_set(start: Starter, tmp_path: Path) -> None:
    gateway = await start()
    assert await prompt_of(gateway, tmp_path) == "[user]hi[assistant]"
    settings = {"enable_thinking": False}
    prompt = await prompt_of(gateway, tmp_path, chat_template_kwargs=settings)
    assert prompt == "[user]hi[assistant]<think>\n\n</think>\n\n"


async def test_settings_are_counted_as_they_are_answered(start: Starter) -> None:
    gateway = await start()
    for settings, behind in ({}, ""), ({"enable_thinking": False}, "<think>\n\n</think>\n\n"):
        body = {"model": "hybrid", "messages": HI, "chat_template_kwargs": settings, "return_token_strs": True}
        async with gateway.http.post("/tokenize", json=body) as response:
            assert "".join((await response.json())["token_strs"]) == f"[user]hi[assistant]{behind}"


async def test_the_assistant_s_thoughts_come_back(start: Starter, tmp_path: Path) -> None:
    gateway = await start()
    said = {"role": "assistant", "content": "Hello!", "reasoning_content": "It greets."}
    prompt = "[user]hi[assistant]<think>It greets.</think>Hello![user]hi[assistant]"
    assert await prompt_of(gateway, tmp_path, messages=[*HI, said, *HI]) == prompt


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {"chat_template_kwargs": {"think": True}},
            "chat_template_kwargs",
            "the chat template of this model has no 'think'; what can be set is: enable_thinking",
        ),
        ({"chat_template_kwargs": {"messages": ""}}, "chat_template_kwargs", "has no 'messages'"),
        ({"chat_template_kwargs": {"enable_thinking": [1]}}, "chat_template_kwargs", ""),
        ({"messages": [{**HI[0], "reasoning_content": "x"}]}, "messages[0].reasoning_content", "is the assistant's"),
    ],
)
async def test_what_cannot_be_set_is_refused_by_name(
    start: Starter, fields: dict[str, Any], param: str, text: str
) -> None:
    gateway = await start()
    told = await refusal(gateway, **fields)
    assert told[0].startswith(param)
    assert text in told[1]


# --- gpt-oss ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def start_harmony(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model whose outputs are messages of channels, with marks that are control tokens."""

    async def start(answer: Answer | None = None) -> Gateway:
        kinds = [*[TokenType.NORMAL] * 256, *[TokenType.CONTROL] * (2 + len(HARMONY_MARKS))]
        path = write_model(
            tmp_path / "hybrid.gguf",
            template=HARMONY,
            context_length=MAX_MODEL_LEN,
            tokens=[*ALPHABET, "<|im_end|>", "<|im_start|>", *HARMONY_MARKS, *MERGED],
            kinds=[*kinds, *[TokenType.NORMAL] * len(MERGED)],
        )
        return await start_gateway(answer, models=[{"name": "hybrid", "source": str(path)}])

    return start


def harmony_ids(text: str) -> list[int]:
    """With the marks that are control tokens as such."""
    pieces = re.split(f"({'|'.join(map(re.escape, HARMONY_MARKS))})", text)
    ids: list[int] = []
    for piece in pieces:
        ids += [MARK + HARMONY_MARKS.index(piece)] if piece in HARMONY_MARKS else output_ids(piece)
    return ids


THOUGHT = "<|channel|>analysis<|message|>It greets.<|end|><|start|>assistant"
SAID = f"{THOUGHT}<|channel|>final<|message|>Hello!"
CALLED = f"{THOUGHT} to=functions.get<|channel|>commentary json<|message|>{{}}"


@pytest.mark.parametrize("size", [1, 5, 100])
async def test_channels_are_thoughts_and_answer(start_harmony: Starter, size: int) -> None:
    gateway = await start_harmony(answering(harmony_ids(SAID), size=size))
    turn = await message(gateway)
    assert (turn["content"], turn["reasoning_content"]) == ("Hello!", "It greets.")
    assert await streamed(gateway) == ("It greets.", "Hello!")
    num_thought = len(harmony_ids(SAID.removesuffix("Hello!")))
    assert (await usage_of(gateway))["completion_tokens_details"] == {"reasoning_tokens": num_thought}


async def test_a_message_to_a_function_is_a_call(start_harmony: Starter) -> None:
    gateway = await start_harmony(answering(harmony_ids(CALLED)))
    turn = await message(gateway, tools=[tool("get")])
    (call,) = turn["tool_calls"]
    assert (turn["content"], turn["reasoning_content"], call["function"]) == (
        None,
        "It greets.",
        {"name": "get", "arguments": "{}"},
    )


async def test_what_is_held_to_a_form_stands_in_the_channel_of_answers(start_harmony: Starter) -> None:
    lead = await lead_of(await start_harmony(), model="hybrid")
    assert lead.startswith(
        'lead: (<[259]> "analysis" <[260]> THOUGHTS <[261]> <[258]> "assistant")? <[259]> "final" <[260]>\n'
    )


async def test_what_was_thought_and_said_before_a_call_comes_back_as_one(
    start_harmony: Starter, tmp_path: Path
) -> None:
    """As gpt-oss's template, this one takes thoughts under another name, and not beside a text."""
    gateway = await start_harmony()
    call = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    turn = {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call]}
    prompt = await prompt_of(gateway, tmp_path, messages=[*HI, turn])
    assert "<|channel|>analysis<|message|>Hm.\n\nI look.<|end|><|start|>assistant to=functions.get" in prompt
    said = {"role": "assistant", "content": "Hello!", "reasoning_content": "Hm."}
    assert "final<|message|>Hello!<|end|>" in await prompt_of(gateway, tmp_path, messages=[*HI, said, *HI])


async def test_an_effort_is_told_to_the_template(start_harmony: Starter, tmp_path: Path) -> None:
    gateway = await start_harmony()
    assert "Reasoning: medium" in await prompt_of(gateway, tmp_path)
    assert "Reasoning: high" in await prompt_of(gateway, tmp_path, reasoning_effort="high")
    kwargs = {"reasoning_effort": "low"}
    assert "Reasoning: low" in await prompt_of(gateway, tmp_path, reasoning_effort="high", chat_template_kwargs=kwargs)
    assert await refusal(gateway, reasoning_effort="none") == (
        "reasoning_effort",
        "the model 'hybrid' cannot be kept from thinking",
    )


async def test_no_effort_is_no_thought_where_the_template_can_say_so(start: Starter, tmp_path: Path) -> None:
    gateway = await start()
    assert (await prompt_of(gateway, tmp_path, reasoning_effort="none")).endswith("[assistant]<think>\n\n</think>\n\n")
    usual = await prompt_of(gateway, tmp_path)
    assert await prompt_of(gateway, tmp_path, reasoning_effort="medium") == usual, "it asks for nothing"
    assert await refusal(gateway, reasoning_effort="low") == (
        "reasoning_effort",
        "how much the model 'hybrid' thinks cannot be set",
    )
