"""Functions over a real socket: what the model is told, what its answer turns out to be, and what the client gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.models.models import ServedModel, load_models
from gateway.tools.hermes_prompt import with_hermes
from gateway.tools.notation import NOTATIONS
from shared.config.config import ClusterConfig
from shared.messages.requests.payload import Payload
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.memory_queue import Answer, saying_each
from tests.gateway.tiny import END, MERGED, START, TEMPLATE, write_model
from tests.gateway.tool_models import (
    MARK,
    MAX_MODEL_LEN,
    MISTRAL,
    answering,
    mark_of,
    output_ids,
    tool,
    write_family,
    written,
)
from tests.gateway.tools.written_calls import in_objects

TOOLS = [tool("get", city={"type": "string"}), tool("stop")]
HI = [{"role": "user", "content": "hi"}]
CALL = '<tool_call>\n{"name": "get", "arguments": {"city": "Paris"}}\n</tool_call>'
STOP = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
CODED = "<tool_call>\n<function=get>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
IN_TAGS = "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
INVOKED = (
    '<minimax:tool_call>\n<invoke name="get">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
    "</minimax:tool_call>"
)
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get">\n'
    '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
)
DSML_V4 = DSML.replace("function_calls", "tool_calls")
PYTHON_LINES = '<function_calls>get(city="Paris")</function_calls>'
NAMED = ["mistral_args", "deepseek_v3", "deepseek_v31"]
HARMONY_CALL = '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
PARIS = ("get", '{"city": "Paris"}')

Starter = Callable[..., Awaitable[Gateway]]


Families = dict[bool, tuple[list[dict[str, Any]], dict[str, ServedModel]]]


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Families:
    """A model of each family, and one whose template knows no functions: as configured, and loaded once.

    By whether the first mark of a family is a control token.
    """
    folder = tmp_path_factory.mktemp("families")
    plain = {"name": "plain", "source": str(write_model(folder / "plain.gguf", context_length=MAX_MODEL_LEN))}
    found: Families = {}
    for has_control_mark in (False, True):
        models = [plain, *(write_family(folder, name, has_control_mark=has_control_mark) for name in NOTATIONS)]
        found[has_control_mark] = (models, load_models(ClusterConfig.model_validate({"models": models})))
    return found


@pytest.fixture
def start(start_gateway: GatewayFactory, families: Families) -> Starter:
    """A gateway with all of the families."""

    async def start(answer: Answer | None = None, *, has_control_mark: bool = False) -> Gateway:
        models, served = families[has_control_mark]
        return await start_gateway(answer, models=models, served=served)

    return start


async def asked(gateway: Gateway, **fields: Any) -> ChatCompletion:
    body: dict[str, Any] = {"model": "hermes", "messages": HI, "tools": TOOLS} | fields
    answer: ChatCompletion = await gateway.openai.chat.completions.create(**body)
    return answer


async def streamed(gateway: Gateway, **fields: Any) -> list[ChatCompletionChunk]:
    body: dict[str, Any] = {"model": "hermes", "messages": HI, "tools": TOOLS, "stream": True} | fields
    stream: AsyncIterator[ChatCompletionChunk] = await gateway.openai.chat.completions.create(**body)
    return [chunk async for chunk in stream]


async def submitted(gateway: Gateway, **fields: Any) -> Payload:
    """What a node would get."""
    body = {"model": "hermes", "messages": HI, "tools": TOOLS} | fields
    async with sending(gateway.http.post("/v1/chat/completions", json=body)):
        submit = await gateway.queue.next_submit()
        return gateway.queue.payloads[submit.request_id]


async def refused(gateway: Gateway, **fields: Any) -> dict[str, Any]:
    body = {"model": "hermes", "messages": HI, "tools": TOOLS} | fields
    async with gateway.http.post("/v1/chat/completions", json=body) as response:
        assert response.status == 400
        error: dict[str, Any] = (await response.json())["error"]
    assert gateway.queue.payloads == {}
    return error


def calls_of(answer: ChatCompletion, choice: int = 0) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in answer.choices[choice].message.tool_calls or []]  # type: ignore[union-attr]


def prompt_text(token_ids: Sequence[int]) -> str:
    """The prompt with control tokens by name: those that a client wrote are text, and stand there as such."""
    names = {END: "{END}", START: "{START}", MARK: "{MARK}"}
    merged = [text.replace("Ġ", " ") for text in MERGED]
    texts = [names.get(token) or merged[token - MARK - 1] if token > 255 else None for token in token_ids]
    pieces = [bytes([token]) if text is None else text.encode() for token, text in zip(token_ids, texts, strict=True)]
    return b"".join(pieces).decode()


async def test_a_call(start: Starter) -> None:
    gateway = await start(answering(output_ids(f"I look.\n{CALL}")))
    answer = await asked(gateway)
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look.")
    assert calls_of(answer) == [PARIS]
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.id.startswith("call_")
    assert len(call.id) == len("call_") + 24


async def test_content_is_null_where_there_are_only_calls(start: Starter) -> None:
    gateway = await start(answering(output_ids(f"{CALL}\n{STOP}"), size=7))
    answer = await asked(gateway)
    assert answer.choices[0].message.content is None
    assert calls_of(answer) == [PARIS, ("stop", "{}")]
    first, second = answer.choices[0].message.tool_calls or []
    assert first.id != second.id


async def test_an_answer_without_calls_is_as_ever(start: Starter) -> None:
    gateway = await start(answering(output_ids("Just <b>text</b>. ")))
    async with gateway.http.post(
        "/v1/chat/completions", json={"model": "hermes", "messages": HI, "tools": TOOLS}
    ) as response:
        (choice,) = (await response.json())["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Just <b>text</b>. ", "refusal": None}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_a_stream_of_calls(start: Starter, size: int) -> None:
    gateway = await start(answering(output_ids(f"I look.\n{CALL}{STOP}"), size=size))
    opening, *chunks, end = await streamed(gateway)
    assert (opening.choices[0].delta.role, opening.choices[0].delta.content) == ("assistant", "")
    assert (end.choices[0].finish_reason, end.choices[0].delta.tool_calls) == ("tool_calls", None)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "I look."
    pieces = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or []]
    begins = [one for one in pieces if one.id is not None]
    assert [(one.index, one.type) for one in begins] == [(0, "function"), (1, "function")]
    assert [one.function.name for one in begins if one.function] == ["get", "stop"]
    assert [one.function.arguments for one in begins if one.function] == ["", ""]
    arguments = ["", ""]
    for one in pieces:
        assert one.function is not None
        assert one.id is not None or (one.type, one.function.name) == (None, None)
        arguments[one.index] += one.function.arguments or ""
    assert arguments == [PARIS[1], "{}"]
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)


async def test_arguments_are_sent_before_they_are_whole(start: Starter) -> None:
    gateway = await start()
    body: dict[str, Any] = {"model": "hermes", "messages": HI, "tools": TOOLS, "stream": True}
    asking = asyncio.ensure_future(gateway.openai.chat.completions.create(**body))
    submit = await gateway.queue.next_submit()
    begin, end = output_ids(CALL[: CALL.index("ris")]), output_ids(CALL[CALL.index("ris") :])
    await gateway.queue.send(submit, 0, begin)
    chunks = aiter(await asking)
    deltas = [(await anext(chunks)).choices[0].delta for _ in range(3)]
    added = [call.function for delta in deltas for call in delta.tool_calls or [] if call.function]
    assert [(one.name, one.arguments) for one in added] == [("get", ""), (None, '{"city": "Pa')]
    await gateway.queue.send(submit, len(begin), end, "stop")
    rest = [
        call.function for chunk in [one async for one in chunks] for call in chunk.choices[0].delta.tool_calls or []
    ]
    assert "".join(one.arguments or "" for one in rest if one) == 'ris"}'


async def test_ids_are_the_same_in_a_stream_and_depend_on_the_choice(start: Starter) -> None:
    gateway = await start(answering(output_ids(CALL), output_ids(f"{STOP}{CALL}")))
    chunks = await streamed(gateway, n=2)
    found = {
        (chunk.choices[0].index, one.index): one.id
        for chunk in chunks
        for one in chunk.choices[0].delta.tool_calls or []
        if one.id
    }
    assert sorted(found) == [(0, 0), (1, 0), (1, 1)]
    assert len(set(found.values())) == 3


async def test_each_choice_has_its_own(start: Starter) -> None:
    gateway = await start(answering(output_ids(CALL), output_ids("No.")))
    answer = await asked(gateway, n=2)
    assert [calls_of(answer, number) for number in range(2)] == [[PARIS], []]
    assert [choice.finish_reason for choice in answer.choices] == ["tool_calls", "stop"]
    assert answer.choices[1].message.content == "No."


async def test_what_is_no_call_is_content(start: Starter) -> None:
    text = '<tool_call>\n{"name": "got", "arguments": {}}\n</tool_call>'
    gateway = await start(answering(output_ids(text)))
    answer = await asked(gateway)
    assert answer.choices[0].message.content == text
    assert (answer.choices[0].message.tool_calls, answer.choices[0].finish_reason) == (None, "stop")


async def test_a_call_that_the_limit_cuts(start: Starter) -> None:
    gateway = await start(answering(output_ids(CALL[: CALL.index("ris")]), finish_reason="length"))
    answer = await asked(gateway)
    assert calls_of(answer) == [("get", '{"city": "Pa')]
    assert answer.choices[0].finish_reason == "length"


async def test_a_call_that_a_stop_string_cuts(start: Starter) -> None:
    gateway = await start(answering(output_ids(CALL)))
    answer = await asked(gateway, stop="Paris")
    assert calls_of(answer) == [("get", '{"city": "')]
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_without_parallel_calls_there_is_one(start: Starter, stream: bool) -> None:
    gateway = await start(answering(output_ids(f"{CALL}{STOP}"), size=1000))
    if stream:
        chunks = await streamed(gateway, parallel_tool_calls=False)
        assert {one.index for chunk in chunks for one in chunk.choices[0].delta.tool_calls or []} == {0}
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
    else:
        assert calls_of(await asked(gateway, parallel_tool_calls=False)) == [PARIS]


async def test_functions_that_may_not_be_called_are_not_told(start: Starter) -> None:
    gateway = await start(answering(output_ids(CALL)))
    answer = await asked(gateway, tool_choice="none")
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == (CALL, None)


async def test_nor_are_they_in_the_prompt(start: Starter) -> None:
    gateway = await start()
    without = await submitted(gateway, tools=None)
    assert (await submitted(gateway, tool_choice="none")).prompt_token_ids == without.prompt_token_ids


async def test_logprobs_are_of_all_tokens_those_of_calls_too(start: Starter) -> None:
    gateway = await start(saying_each(CALL, size=1))
    answer = await asked(gateway, logprobs=True)
    assert calls_of(answer) == [PARIS]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    num_tokens = len(CALL.encode()) + 1
    assert len(logprobs.content or []) == num_tokens
    chunks = await streamed(gateway, logprobs=True)
    scored = [chunk.choices[0].logprobs for chunk in chunks]
    assert sum(len(one.content or []) for one in scored if one is not None) == num_tokens


# --- families ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "text", "has_control_mark"),
    [
        ("hermes", CALL, False),
        ("hermes", CALL, True),
        ("mistral", '[TOOL_CALLS] [{"name": "get", "arguments": {"city": "Paris"}}]', False),
        ("mistral", '[TOOL_CALLS] [{"name": "get", "arguments": {"city": "Paris"}}]', True),
        ("llama3_json", '{"name": "get", "parameters": {"city": "Paris"}}', False),
        ("llama3_json", '<|python_tag|>{"name": "get", "parameters": {"city": "Paris"}}', True),
        ("plain", CALL, False),
        ("qwen3_coder", CODED, False),
        ("qwen3_coder", CODED, True),
        ("glm45", "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>", False),
        *(
            (family, in_objects(NOTATIONS[family], [PARIS]), is_control)
            for family in NAMED
            for is_control in (False, True)
        ),
        ("kimi_k2", in_objects(NOTATIONS["kimi_k2"], [PARIS]), True),
        ("harmony", HARMONY_CALL, False),
        ("pythonic", '[get(city="Paris")]', False),
        ("pythonic", "<|python_start|>[get(city='Paris')]<|python_end|>", True),
        ("lfm2", '<|tool_call_start|>[get(city="Paris")]<|tool_call_end|>', True),
        ("granite", '<|tool_call|>[{"name": "get", "arguments": {"city": "Paris"}}]', True),
        ("gemma4", '<|tool_call>call:get{city:<|"|>Paris<|"|>}<tool_call|>', True),
        *(
            (family, text, is_control)
            for family, text in (
                ("minimax_m2", INVOKED),
                ("deepseek_v32", DSML),
                ("deepseek_v4", DSML_V4),
                ("olmo3", PYTHON_LINES),
            )
            for is_control in (False, True)
        ),
    ],
)
async def test_each_family_is_read_and_forced(start: Starter, family: str, text: str, has_control_mark: bool) -> None:
    mark = mark_of(family) if has_control_mark else ""
    gateway = await start(answering(output_ids(text, mark)), has_control_mark=has_control_mark)
    for choice in ("auto", "required", {"type": "function", "function": {"name": "get"}}):
        answer = await asked(gateway, model=family, tool_choice=choice)
        assert calls_of(answer) == [PARIS]
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize("family", NAMED)
async def test_calls_of_a_family_come_back_as_it_writes_them(start: Starter, family: str) -> None:
    gateway = await start()
    function = {"name": "get", "arguments": '{"city": "Paris"}'}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    messages = [*HI, {"role": "assistant", "tool_calls": calls}]
    text = prompt_text((await submitted(gateway, model=family, messages=messages, tools=None)).prompt_token_ids)
    calls_text = in_objects(NOTATIONS[family], [PARIS], has_section=False)
    role = "[assistant] " if family == "mistral_args" else "<assistant>"
    assert text.endswith(f"{role}{calls_text}"), "where there is no text, no empty one stands in its place"


@pytest.mark.parametrize(
    ("family", "written_call"),
    [
        ("qwen3_coder", CODED),
        ("glm45", IN_TAGS),
        ("minimax_m2", INVOKED),
        ("deepseek_v32", DSML),
        ("deepseek_v4", DSML_V4),
        ("olmo3", PYTHON_LINES),
    ],
)
async def test_calls_come_back_as_they_were_written(start: Starter, family: str, written_call: str) -> None:
    gateway = await start()
    calls = [{"id": "call_1", "type": "function", "function": {"name": PARIS[0], "arguments": PARIS[1]}}]
    messages = [*HI, {"role": "assistant", "tool_calls": calls}]
    text = prompt_text((await submitted(gateway, model=family, messages=messages, tools=None)).prompt_token_ids)
    assert text.endswith(written_call)


async def test_a_mark_that_is_a_control_token_is_no_text_without_functions(start: Starter) -> None:
    gateway = await start(answering(output_ids("a[TOOL_CALLS]b", "[TOOL_CALLS]")), has_control_mark=True)
    assert (await asked(gateway, model="mistral", tools=None)).choices[0].message.content == "ab"
    assert (await asked(gateway, model="mistral")).choices[0].message.content == "a[TOOL_CALLS]b"


async def test_ids_are_as_long_as_the_family_wants_them(start: Starter) -> None:
    gateway = await start(answering(output_ids('[TOOL_CALLS] [{"name": "stop"}]')))
    answer = await asked(gateway, model="mistral")
    (call,) = answer.choices[0].message.tool_calls or []
    assert len(call.id) == 9
    assert call.id.isalnum()


async def test_ids_have_the_number_that_their_family_wants(start: Starter) -> None:
    """Kimi's template writes ids of earlier calls into the prompt, where the model has learnt to see numbers."""
    notation = NOTATIONS["kimi_k2"]
    gateway = await start(answering(output_ids(in_objects(notation, [PARIS, ("stop", "{}")]))))
    first = (await asked(gateway, model="kimi_k2")).choices[0].message.tool_calls or []
    assert [call.id for call in first] == ["functions.get:0", "functions.stop:1"]
    turn = {"role": "assistant", "tool_calls": [call.model_dump() for call in first]}
    results = [{"role": "tool", "tool_call_id": call.id, "content": "12"} for call in first]
    second = (await asked(gateway, model="kimi_k2", messages=[*HI, turn, *results])).choices[0].message.tool_calls or []
    assert [call.id for call in second] == ["functions.get:2", "functions.stop:3"]
    payload = await submitted(await start(), model="kimi_k2", messages=[*HI, turn, *results])
    assert "<|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{}" in prompt_text(payload.prompt_token_ids)


async def test_the_configuration_may_say_the_notation(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    model = write_family(tmp_path, "hermes") | {"tool_calls": "llama3_json"}
    gateway = await start_gateway(answering(output_ids('{"name": "stop", "parameters": {}}')), models=[model])
    assert calls_of(await asked(gateway)) == [("stop", "{}")]


# --- what the model is told -------------------------------------------------------------------------------------------


async def test_a_template_is_given_the_functions(start: Starter) -> None:
    gateway = await start()
    text = prompt_text((await submitted(gateway)).prompt_token_ids)
    assert text == (
        f"{{START}}system\n{written(TOOLS)}\nWrite <tool_call>...</tool_call>.{{END}}\n"
        "{START}user\nhi{END}\n{START}assistant\n"
    )


async def test_calls_and_results_of_earlier_turns(start: Starter) -> None:
    gateway = await start()
    function = {"name": "get", "arguments": '{"city":"Z\\u00fcrich"}'}
    call = {"id": "call_123x", "type": "function", "function": function}
    messages = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_123x", "content": "12 °C"},
    ]
    text = prompt_text((await submitted(gateway, messages=messages, tools=None)).prompt_token_ids)
    assert text.endswith(
        '{START}assistant\n<tool_call>\n{"name": "get", "arguments": {"city": "Zürich"}}\n</tool_call>{END}\n'
        "{START}tool\n12 °C{END}\n{START}assistant\n"
    )
    text = prompt_text((await submitted(gateway, model="mistral", messages=messages, tools=None)).prompt_token_ids)
    assert text == (
        '[user] hi[TOOL_CALLS] [{"name": "get", "arguments": {"city": "Zürich"}, "id": "call_123x"}]'
        "[RESULT] call_123x 12 °C"
    )
    text = prompt_text((await submitted(gateway, model="plain", messages=messages, tools=None)).prompt_token_ids)
    assert text.endswith(
        '{START}assistant\n<tool_call>\n{"name": "get", "arguments": {"city": "Zürich"}}\n</tool_call>{END}\n'
        "{START}user\n<tool_response>\n12 °C\n</tool_response>{END}\n{START}assistant\n"
    )


async def test_a_template_for_functions_is_taken_where_there_are_some(
    start_gateway: GatewayFactory, tmp_path: Path
) -> None:
    path = write_model(tmp_path / "two.gguf", context_length=MAX_MODEL_LEN, tool_template=MISTRAL)
    gateway = await start_gateway(models=[{"name": "two", "source": str(path)}])
    call = {"id": "123456789", "type": "function", "function": {"name": "stop", "arguments": "{}"}}
    turn = {"role": "assistant", "tool_calls": [call]}
    plain = prompt_text((await submitted(gateway, model="two", tools=None)).prompt_token_ids)
    told = prompt_text((await submitted(gateway, model="two")).prompt_token_ids)
    called = prompt_text((await submitted(gateway, model="two", tools=None, messages=[turn])).prompt_token_ids)
    assert plain == "{START}user\nhi{END}\n{START}assistant\n"
    assert told == f"[TOOLS] {json.dumps(TOOLS)}[/TOOLS][user] hi"
    assert called == '[TOOL_CALLS] [{"name": "stop", "arguments": {}, "id": "123456789"}]'


async def test_a_template_that_knows_no_functions_has_them_in_the_system_message(start: Starter) -> None:
    gateway = await start()
    (told, _) = with_hermes(HI, TOOLS)
    text = prompt_text((await submitted(gateway, model="plain")).prompt_token_ids)
    assert text == f"{{START}}system\n{told['content']}{{END}}\n{{START}}user\nhi{{END}}\n{{START}}assistant\n"


async def test_what_is_told_of_in_the_form_of_hermes_is_read_in_it(
    start_gateway: GatewayFactory, tmp_path: Path
) -> None:
    """Olmo 3's thinking models have templates with marks of calls that are never given functions."""
    template = f"{TEMPLATE}{{# <function_calls> #}}"
    path = write_model(tmp_path / "thinking.gguf", template=template, context_length=MAX_MODEL_LEN)
    gateway = await start_gateway(answering(output_ids(CALL)), models=[{"name": "thinking", "source": str(path)}])
    assert calls_of(await asked(gateway, model="thinking")) == [PARIS]


async def test_tokenize_counts_them(start: Starter) -> None:
    gateway = await start()
    prompt = (await submitted(gateway)).prompt_token_ids
    async with gateway.http.post("/tokenize", json={"model": "hermes", "messages": HI, "tools": TOOLS}) as response:
        assert (await response.json())["tokens"] == prompt
    async with gateway.http.post("/tokenize", json={"model": "hermes", "prompt": "hi", "tools": TOOLS}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "tools")


async def test_what_a_template_refuses_is_told(start: Starter) -> None:
    gateway = await start()
    call = {"id": "short", "type": "function", "function": {"name": "stop", "arguments": "{}"}}
    error = await refused(gateway, model="mistral", messages=[*HI, {"role": "assistant", "tool_calls": [call]}])
    assert (error["code"], error["param"]) == ("chat_template", "messages")
    assert "ids have 9 characters" in error["message"]


@pytest.mark.parametrize("family", ["plain", *NOTATIONS])
async def test_no_text_of_a_client_becomes_a_control_token(start: Starter, family: str) -> None:
    """Wherever it stands, in whatever JSON: the prompt has as many control tokens as with harmless text."""
    gateway = await start(has_control_mark=True)

    async def prompt(evil: str, escaped: str) -> list[int]:
        schema = {"type": "object", "properties": {evil: {"enum": [evil, [evil]], "description": evil}}}
        function = {"name": "f", "description": evil, "parameters": schema}
        arguments = f'{{"{escaped}": ["{escaped}", {{"a": "{evil}"}}]}}'
        call = {"id": "123456789", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [
            {"role": "system", "content": evil},
            {"role": "assistant", "content": evil, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"1{evil}", "content": evil},
        ]
        tools = [{"type": "function", "function": function}]
        payload = await submitted(gateway, model=family, messages=messages, tools=tools)
        return payload.prompt_token_ids

    harmless = await prompt("harmless", "harmless")
    for evil in ("<|im_end|>", "<|im_start|>", mark_of("hermes" if family == "plain" else family)):
        escaped = "".join(f"\\u{ord(character):04x}" for character in evil)
        hostile = await prompt(evil, escaped)
        for token in (END, START, MARK):
            assert hostile.count(token) == harmless.count(token)
        assert evil in prompt_text(hostile)


# --- forced calls -----------------------------------------------------------------------------------------------------


async def test_calls_that_are_asked_for_are_a_constraint(start: Starter) -> None:
    gateway = await start()
    free = (await submitted(gateway)).sampling
    required = (await submitted(gateway, tool_choice="required")).sampling
    named = (await submitted(gateway, tool_choice={"type": "function", "function": {"name": "stop"}})).sampling
    assert free.constraint is None
    assert required.constraint is not None
    assert named.constraint is not None
    assert (required.constraint.kind, named.constraint.kind) == ("grammar", "grammar")
    assert json.dumps('{"name": "get", "arguments": ') in required.constraint.text
    assert json.dumps('{"name": "get", "arguments": ') not in named.constraint.text
    assert json.dumps('{"name": "stop", "arguments": ') in named.constraint.text


async def test_the_prompt_is_the_same_however_calls_are_asked_for(start: Starter) -> None:
    gateway = await start()
    choices: list[Any] = ["auto", "required", {"type": "function", "function": {"name": "stop"}}]
    prompts = [(await submitted(gateway, tool_choice=choice)).prompt_token_ids for choice in choices]
    assert prompts == [prompts[0]] * 3


async def test_a_schema_that_cannot_be_kept_is_refused_where_it_has_to_be(start: Starter) -> None:
    gateway = await start(answering(output_ids("a")))
    tools = [tool("stop"), tool("get", city={"type": "array", "uniqueItems": True})]
    error = await refused(gateway, tools=tools, tool_choice="required")
    assert error["param"] == "tools[1].function.parameters"
    assert 'Unimplemented keys: ["uniqueItems"]' in error["message"]
    assert (await asked(gateway, tools=tools)).choices[0].message.content == "a"
    named = {"type": "function", "function": {"name": "stop"}}
    assert (await asked(gateway, tools=tools, tool_choice=named)).choices[0].message.content == "a"


async def test_a_schema_that_grows_beyond_all_bounds_is_refused(start: Starter) -> None:
    gateway = await start()
    defs: dict[str, Any] = {"d5": {"type": "object"}}
    for number in range(5):
        inner = {"$ref": f"#/$defs/d{number + 1}"}
        ways = [{"anyOf": [inner, {"type": "object", "properties": {f"{name}{number}": {}}}]} for name in "xy"]
        defs[f"d{number}"] = {"allOf": ways}
    function = {"name": "f", "parameters": {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs}}
    error = await refused(gateway, tools=[{"type": "function", "function": function}], tool_choice="required")
    assert error["param"] == "tools[0].function.parameters"
    assert "schema too large" in error["message"]
