"""Texts of outputs, and the texts and calls that they are, in each family's notation."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.call_parser import CallParser
from gateway.tools.calls.call_reader import Functions
from gateway.tools.calls.python_call import MAX_KEY_CHARACTERS, MAX_VALUE_CHARACTERS
from gateway.tools.events import Arguments, CallBegin, Text, ToolEvent, joined
from gateway.tools.notation import (
    DEEPSEEK_V3,
    DEEPSEEK_V4,
    DEEPSEEK_V31,
    DEEPSEEK_V32,
    DSML,
    GEMMA4,
    GLM45,
    GRANITE,
    HARMONY,
    HERMES,
    KIMI_K2,
    LFM2,
    LLAMA3_JSON,
    MINIMAX_M2,
    MISTRAL,
    MISTRAL_ARGS,
    NOTATIONS,
    OLMO3,
    PYTHONIC,
    QWEN3_CODER,
    Notation,
)
from tests.gateway.tools.written_calls import in_objects, in_tags

NAMES: Functions = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "get": None,
    "stop": None,
}


def parsed(notation: Notation, *pieces: str) -> list[ToolEvent]:
    parser = CallParser(notation, NAMES)
    return joined([*(event for piece in pieces for event in parser.feed(piece)), *parser.end()])


def call(name: str, arguments: str) -> list[ToolEvent]:
    return [CallBegin(name), Arguments(arguments)]


WEATHER = call("get_weather", '{"city": "Paris"}')
STOP = call("stop", "{}")


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("", []),
        (" \n", [Text(" \n")]),
        ("a < b", [Text("a < b")]),
        ("a <tool", [Text("a <tool")]),
        ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', WEATHER),
        ('<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', WEATHER),
        ('<tool_call>{"type":"function","id":[1, -2.5e3],"name":"stop"}</tool_call>\n', STOP),
        ('I look.\n<tool_call>{"name":"stop","arguments":{}}</tool_call>', [Text("I look."), *STOP]),
        (
            '<tool_call>{"name":"stop","arguments":{}}</tool_call>\n<tool_call>\n{"name":"get","parameters":{}}',
            [*STOP, *call("get", "{}")],
        ),
        ('<tool_call>{"name":"stop","arguments":{}}</tool_call> Done. ', [*STOP, Text(" Done.")]),
        # what lacks an end marker, a brace, or both
        ('<tool_call>{"name":"stop","arguments":{}}\n<tool_call>{"name":"stop"}', [*STOP, *STOP]),
        ('<tool_call>{"name":"stop","arguments":{}\n</tool_call>', STOP),
        ('<tool_call>{"name":"stop","arguments":{}}\n</tool_c', STOP),
        ('<tool_call>{"name":"stop","arguments":{}', STOP),
        # no calls at all
        ("<tool_call>stop</tool_call>", [Text("<tool_call>stop</tool_call>")]),
        ('<tool_call>{"name":"go","arguments":{}}', [Text('<tool_call>{"name":"go","arguments":{}}')]),
        ('<tool_call>{"name":"get_","arguments":{}}', [Text('<tool_call>{"name":"get_","arguments":{}}')]),
        ('<tool_call>{"name":"stop","arguments":5}', [Text('<tool_call>{"name":"stop","arguments":5}')]),
        ('<tool_call>{"arguments":{}}', [Text('<tool_call>{"arguments":{}}')]),
        ('<tool_call>{"name":"stop","name":"get"}', [Text('<tool_call>{"name":"stop","name":"get"}')]),
        ('<tool_call>{"city":"Paris"}', [Text('<tool_call>{"city":"Paris"}')]),
        ('<tool_call>\n<tool_call>{"name":"stop"}', [Text("<tool_call>\n"), *STOP]),
        ('<<tool_call>{"name":"stop"}', [Text("<"), *STOP]),
        # a fault behind what the client has been told of
        ('<tool_call>{"name":"get","arguments":{"a":1,}} x', [CallBegin("get"), Arguments('{"a":1,'), Text("}} x")]),
        ('<tool_call>{"name":"get","arguments":{"a":"b', [CallBegin("get"), Arguments('{"a":"b')]),
        (
            '<tool_call>{"name":"get","arguments":{},"city":"b"}',
            [*call("get", "{}"), Text(',"city":"b"}')],
        ),
    ],
)
def test_hermes(text: str, events: list[ToolEvent]) -> None:
    assert parsed(HERMES, text) == parsed(HERMES, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('{"name": "get_weather", "parameters": {"city": "Paris"}}', WEATHER),
        ('<|python_tag|>{"name": "get_weather", "arguments": {"city": "Paris"}}', WEATHER),
        (' {"name":"stop","parameters":{}}; {"name":"stop","parameters":{}}', [*STOP, *STOP]),
        ('{"name":"stop","parameters":{}}\n{"name":"stop","parameters":{}}', [*STOP, *STOP]),
        ('{"name":"stop","parameters":{}} and more', [*STOP, Text(" and more")]),
        ('{"name":"stop","parameters":{}};', [*STOP, Text(";")]),
        ('I look. {"name":"stop","parameters":{}}', [Text('I look. {"name":"stop","parameters":{}}')]),
        ('I look. <|python_tag|>{"name":"stop","parameters":{}}', [Text("I look."), *STOP]),
        ('{"city": "Paris"}', [Text('{"city": "Paris"}')]),
        ('{"name": "Paris"}', [Text('{"name": "Paris"}')]),
        ("<|python_tag|>print()", [Text("<|python_tag|>print()")]),
    ],
)
def test_llama3_json(text: str, events: list[ToolEvent]) -> None:
    assert parsed(LLAMA3_JSON, text) == parsed(LLAMA3_JSON, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', WEATHER),
        ('[TOOL_CALLS][{"name":"stop","arguments":{}}, {"name":"stop","arguments":{}} ]\n', [*STOP, *STOP]),
        ('I look. [TOOL_CALLS][{"name":"stop","arguments":{}}] Done.', [Text("I look."), *STOP, Text(" Done.")]),
        ('[TOOL_CALLS][{"name":"stop","arguments":{}},x', [*STOP, Text(",x")]),
        ('[TOOL_CALLS][{"name":"stop","arguments":{}}', STOP),
        ("[TOOL_CALLS][]", [Text("[TOOL_CALLS][]")]),
        ("[TOOL_CALLS]stop", [Text("[TOOL_CALLS]stop")]),
        ("[TOOL] [1]", [Text("[TOOL] [1]")]),
    ],
)
def test_mistral(text: str, events: list[ToolEvent]) -> None:
    assert parsed(MISTRAL, text) == parsed(MISTRAL, *text) == events


CODED = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (CODED, WEATHER),
        (f"I look.\n{CODED}\n{CODED}\n", [Text("I look."), *WEATHER, *WEATHER]),
        ("<tool_call><function=stop></function></tool_call> Done.", [*STOP, Text(" Done.")]),
        ('<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>', STOP),
        (
            "<tool_call><function=get_weather><parameter=city>a\n\n<b>\n</parameter>"
            "<parameter=days>3</parameter></function>",
            call("get_weather", '{"city": "a\\n\\n<b>", "days": 3}'),
        ),
        # what breaks off, and what is none
        (
            "<tool_call><function=get_weather><parameter=city>\nPa",
            [CallBegin("get_weather"), Arguments('{"city": "Pa')],
        ),
        ("<tool_call><function=get_weather><parameter=days>\n1", [CallBegin("get_weather"), Arguments('{"days": ')]),
        ("<tool_call><function=stop>x", [CallBegin("stop"), Arguments("{"), Text("x")]),
        (
            "<tool_call><function=get><parameter=a>1</parameter><parameter=a>2</parameter></function>",
            [CallBegin("get"), Arguments('{"a": "1"'), Text(">2</parameter></function>")],
        ),
        ("<tool_call><function=go></function>", [Text("<tool_call><function=go></function>")]),
        ("<tool_call><functions>", [Text("<tool_call><functions>")]),
    ],
)
def test_qwen3_coder(text: str, events: list[ToolEvent]) -> None:
    assert parsed(QWEN3_CODER, text) == parsed(QWEN3_CODER, *text) == events


PARIS = "<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f"<tool_call>get_weather\n{PARIS}</tool_call>", WEATHER),
        (f"\n<tool_call>get_weather{PARIS}</tool_call>\n<tool_call>stop</tool_call>\n", [*WEATHER, *STOP]),
        ("<tool_call>stop\n</tool_call> Done.", [*STOP, Text(" Done.")]),
        ('<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>', STOP),
        ("<tool_call>go</tool_call>", [Text("<tool_call>go</tool_call>")]),
        ("<tool_call>stop<arg_value>", [CallBegin("stop"), Arguments("{"), Text("value>")]),
    ],
)
def test_glm45(text: str, events: list[ToolEvent]) -> None:
    assert parsed(GLM45, text) == parsed(GLM45, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', WEATHER),
        ("I look. [TOOL_CALLS]stop[ARGS]{}[TOOL_CALLS]stop[CALL_ID]a1b2c3d4e[ARGS]{}", [Text("I look."), *STOP, *STOP]),
        ("[TOOL_CALLS]stop[ARGS]{} Done.", [*STOP, Text(" Done.")]),
        ("[TOOL_CALLS]stop[ARGS]5", [Text("[TOOL_CALLS]stop[ARGS]5")]),
        ("[TOOL_CALLS]go[ARGS]{}", [Text("[TOOL_CALLS]go[ARGS]{}")]),
        ("[TOOL_CALLS]get_[ARGS]{}", [Text("[TOOL_CALLS]get_[ARGS]{}")]),
        ('[TOOL_CALLS]get[ARGS]{"a": }', [CallBegin("get"), Arguments('{"a": '), Text("}")]),
    ],
)
def test_mistral_args(text: str, events: list[ToolEvent]) -> None:
    assert parsed(MISTRAL_ARGS, text) == parsed(MISTRAL_ARGS, *text) == events


ALL, NONE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
ONE, SEP, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f'{ALL}{ONE}get_weather{SEP}{{"city": "Paris"}}{END}{NONE}', WEATHER),
        (f"I look.{ALL}{ONE}stop{SEP}{{}}{END}\n{ONE}stop{SEP}{{}}{END}{NONE}\n", [Text("I look."), *STOP, *STOP]),
        (f"{ONE}stop{SEP}{{}}", STOP),
        (f"{ALL}{ONE}stop{SEP}{{}}{END}{NONE} Done.", [*STOP, Text(" Done.")]),
        (f"{ALL} nothing {NONE}", [Text(f"{ALL} nothing {NONE}")]),
        (f"{ALL}{ONE}go{SEP}{{}}{END}", [Text(f"{ALL}{ONE}go{SEP}{{}}{END}")]),
    ],
)
def test_deepseek_v31(text: str, events: list[ToolEvent]) -> None:
    assert parsed(DEEPSEEK_V31, text) == parsed(DEEPSEEK_V31, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f'{ALL}{ONE}function{SEP}get_weather\n```json\n{{"city": "Paris"}}\n```{END}{NONE}', WEATHER),
        (f"{ONE}function{SEP}stop\n```json\n{{}}\n```{END}\n{ONE}function{SEP}stop\n```json\n{{}}", [*STOP, *STOP]),
        (f"{ONE}function{SEP}stop\n{{}}", [Text(f"{ONE}function{SEP}stop\n{{}}")]),
    ],
)
def test_deepseek_v3(text: str, events: list[ToolEvent]) -> None:
    assert parsed(DEEPSEEK_V3, text) == parsed(DEEPSEEK_V3, *text) == events


KIMI, KIMI_SEP, KIMI_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
KIMI_ALL, KIMI_NONE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (
            f'I look.{KIMI_ALL}{KIMI}functions.get_weather:0{KIMI_SEP}{{"city": "Paris"}}{KIMI_END}'
            f"{KIMI}functions.stop:1{KIMI_SEP}{{}}{KIMI_END}{KIMI_NONE}",
            [Text("I look."), *WEATHER, *STOP],
        ),
        (f"{KIMI}functions.stop{KIMI_SEP}{{}}", STOP),
        (f"{KIMI}stop:0{KIMI_SEP}{{}}", [Text(f"{KIMI}stop:0{KIMI_SEP}{{}}")]),
    ],
)
def test_kimi_k2(text: str, events: list[ToolEvent]) -> None:
    assert parsed(KIMI_K2, text) == parsed(KIMI_K2, *text) == events


TO = "<|channel|>commentary to=functions."


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f'{TO}get_weather<|message|>{{"city": "Paris"}}<|call|>', WEATHER),
        (f"I look.{TO}stop <|constrain|>json<|message|>{{}}", [Text("I look."), *STOP]),
        (f"{TO}go<|message|>{{}}<|call|>", [Text(f"{TO}go<|message|>{{}}<|call|>")]),
    ],
)
def test_harmony(text: str, events: list[ToolEvent]) -> None:
    assert parsed(HARMONY, text) == parsed(HARMONY, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('[get_weather(city="Paris")]', WEATHER),
        ("<|python_start|>[stop(), get_weather(city='Paris')]<|python_end|>", [*STOP, *WEATHER]),
        (
            'I look. <|python_start|>[get_weather(city="Paris")]<|python_end|> Done.',
            [Text("I look."), *WEATHER, Text(" Done.")],
        ),
        (
            "[get(a = [1, {'b': (None, True)}], c=null, d='x)\\'],', e=-1.5e3, f=Paris)]",
            call("get", '{"a": [1, {"b": [null, true]}], "c": null, "d": "x)\'],", "e": -1500.0, "f": "Paris"}'),
        ),
        ('[{"name": "get_weather", "parameters": {"city": "Paris"}}]', WEATHER),
        # what breaks off, and what is none
        ('[get_weather(city="Pa', [CallBegin("get_weather"), Arguments("{")]),
        ("[get(a=1, a=2)]", [CallBegin("get"), Arguments('{"a": 1'), Text("=2)]")]),
        ("[get(1)]", [CallBegin("get"), Arguments("{"), Text(")]")]),
        ("[1, 2]", [Text("[1, 2]")]),
        ("[go()]", [Text("[go()]")]),
        ("stop()", [Text("stop()")]),
        ("I look. [stop()]", [Text("I look. [stop()]")]),
    ],
)
def test_pythonic(text: str, events: list[ToolEvent]) -> None:
    assert parsed(PYTHONIC, text) == parsed(PYTHONIC, *text) == events


def test_a_value_that_is_too_deep_or_too_long_ends_its_call() -> None:
    deep = f"[get(a={'[' * 65}"
    assert parsed(PYTHONIC, deep) == [CallBegin("get"), Arguments("{"), Text("[")]
    long = f"[get(a='{'x' * MAX_VALUE_CHARACTERS}"
    assert parsed(PYTHONIC, long) == [CallBegin("get"), Arguments("{"), Text("x")]


def test_a_key_that_is_too_long_ends_its_call() -> None:
    assert parsed(PYTHONIC, f"[get({'x' * (MAX_KEY_CHARACTERS + 1)}") == [CallBegin("get"), Arguments("{"), Text("x")]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>I looked.', [*WEATHER, Text("I looked.")]),
        ('<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|tool_call_end|>', WEATHER),
        ("[stop()]", [Text("[stop()]")]),
    ],
)
def test_lfm2(text: str, events: list[ToolEvent]) -> None:
    assert parsed(LFM2, text) == parsed(LFM2, *text) == events


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ('<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]', WEATHER),
        ('<|tool_call|>[{"name": "stop", "arguments": {}}]<|/tool_call|>', STOP),
        ("<|/tool_call|>", [Text("<|/tool_call|>")]),
    ],
)
def test_granite(text: str, events: list[ToolEvent]) -> None:
    assert parsed(GRANITE, text) == parsed(GRANITE, *text) == events


GEMMA, GEMMA_END = "<|tool_call>", "<tool_call|>"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f'{GEMMA}call:get_weather{{city:<|"|>Paris<|"|>}}{GEMMA_END}', WEATHER),
        (f"I look.{GEMMA}call:stop{{}}{GEMMA_END}{GEMMA}call:stop{{}}{GEMMA_END}", [Text("I look."), *STOP, *STOP]),
        (
            f'{GEMMA}call:get{{a:[1,{{b-c:null}}],d:<|"|>"x}},e:<br><|"|>}}{GEMMA_END}',
            call("get", '{"a": [1, {"b-c": null}], "d": "\\"x},e:<br>"}'),
        ),
        (f"{GEMMA}call:go{{}}{GEMMA_END}", [Text(f"{GEMMA}call:go{{}}{GEMMA_END}")]),
        (f"{GEMMA}call:get{{a:b}}{GEMMA_END}", [Text(f"{GEMMA}call:get{{a:b}}{GEMMA_END}")]),
        (f'{GEMMA}call:get{{a:<|"|>}}', [Text(f'{GEMMA}call:get{{a:<|"|>}}')]),
    ],
)
def test_gemma4(text: str, events: list[ToolEvent]) -> None:
    assert parsed(GEMMA4, text) == parsed(GEMMA4, *text) == events


MINIMAX_ALL, MINIMAX_NONE = "<minimax:tool_call>", "</minimax:tool_call>"
MINIMAX_WEATHER = '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>'
MINIMAX_STOP = '<invoke name="stop">\n</invoke>'


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f"{MINIMAX_ALL}\n{MINIMAX_WEATHER}\n{MINIMAX_NONE}", WEATHER),
        (
            f"I look.\n{MINIMAX_ALL}\n{MINIMAX_WEATHER}\n{MINIMAX_STOP}\n{MINIMAX_NONE} Done.",
            [Text("I look."), *WEATHER, *STOP, Text(" Done.")],
        ),
        (f"{MINIMAX_ALL}{MINIMAX_STOP}{MINIMAX_NONE}\n{MINIMAX_ALL}{MINIMAX_STOP}{MINIMAX_NONE}\n", [*STOP, *STOP]),
        (
            '<invoke name="get_weather"><parameter name="city">\na <b>\n</parameter>'
            '<parameter name="days">3</parameter></invoke>',
            call("get_weather", '{"city": "\\na <b>\\n", "days": 3}'),
        ),
        ('<invoke name="get">\n{"a": {"b": "</invoke>"}}\n</invoke>', call("get", '{"a": {"b": "</invoke>"}}')),
        ('<invoke name="stop" >\n{}</invoke>', STOP),
        # what breaks off, and what is none
        (f"{MINIMAX_ALL}\n{MINIMAX_STOP}\n", STOP),
        ('<invoke name="get"><parameter name="a">Pa', [CallBegin("get"), Arguments('{"a": "Pa')]),
        ('<invoke name="get"><parameter name="a"', [CallBegin("get"), Arguments('{"a": ')]),
        ('<invoke name="get">{"a": [1', [CallBegin("get"), Arguments('{"a": [1')]),
        ('<invoke name="get">{"a": }', [CallBegin("get"), Arguments('{"a": '), Text("}")]),
        (
            '<invoke name="get"><parameter name="a">1</parameter>{"b": 2}</invoke>',
            [CallBegin("get"), Arguments('{"a": "1"'), Text('{"b": 2}</invoke>')],
        ),
        (
            '<invoke name="get"><parameter name="a">1</parameter><parameter name="a">2</parameter></invoke>',
            [CallBegin("get"), Arguments('{"a": "1"'), Text('">2</parameter></invoke>')],
        ),
        (f'{MINIMAX_ALL}\n<invoke name="go">', [Text(f'{MINIMAX_ALL}\n<invoke name="go">')]),
        (f"{MINIMAX_ALL} nothing {MINIMAX_NONE}", [Text(f"{MINIMAX_ALL} nothing {MINIMAX_NONE}")]),
    ],
)
def test_minimax_m2(text: str, events: list[ToolEvent]) -> None:
    assert parsed(MINIMAX_M2, text) == parsed(MINIMAX_M2, *text) == events


def dsml(name: str, *arguments: tuple[str, str, str]) -> str:
    tags = [f'<{DSML}parameter name="{key}"{says}>{text}</{DSML}parameter>\n' for key, says, text in arguments]
    return f'<{DSML}invoke name="{name}">\n{"".join(tags)}</{DSML}invoke>'


YES, NO = ' string="true"', ' string="false"'


@pytest.mark.parametrize(("notation", "section"), [(DEEPSEEK_V32, "function_calls"), (DEEPSEEK_V4, "tool_calls")])
@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f"ALL\n{dsml('get_weather', ('city', YES, 'Paris'))}\nNONE", WEATHER),
        (
            f"I look.\n\nALL\n{dsml('stop')}\n{dsml('stop')}\nNONE Done.",
            [Text("I look."), *STOP, *STOP, Text(" Done.")],
        ),
        # a tag says whether its value is a string, whatever the schema says; without a word it is the schema that does
        (dsml("get", ("a", YES, "12"), ("b", NO, "12")), call("get", '{"a": "12", "b": 12}')),
        (
            dsml("get_weather", ("city", NO, "null"), ("days", YES, "3")),
            call("get_weather", '{"city": null, "days": "3"}'),
        ),
        (dsml("get_weather", ("city", "", "12"), ("days", "", "3")), call("get_weather", '{"city": "12", "days": 3}')),
        (dsml("get", ("a", NO, "[1, {}]"), ("b", NO, "Paris")), call("get", '{"a": [1, {}], "b": "Paris"}')),
        (f'<{DSML}invoke name="get_weather">{{"city": "Paris"}}</{DSML}invoke>', WEATHER),
        # what breaks off, and what is none
        (
            dsml("get", ("a", ' string="no"', "")),
            [CallBegin("get"), Arguments('{"a": '), Text(f'no"></{DSML}parameter>\n</{DSML}invoke>')],
        ),
        (f"ALL\n{dsml('go')}\nNONE", [Text(f"ALL\n{dsml('go')}\nNONE")]),
        (MINIMAX_STOP, [Text(MINIMAX_STOP)]),
    ],
)
def test_deepseek_v32_and_v4(notation: Notation, section: str, text: str, events: list[ToolEvent]) -> None:
    def marked(one: str) -> str:
        return one.replace("ALL", f"<{DSML}{section}>").replace("NONE", f"</{DSML}{section}>")

    marked_events = [Text(marked(event.text)) if isinstance(event, Text) else event for event in events]
    assert parsed(notation, marked(text)) == parsed(notation, *marked(text)) == marked_events


OLMO, OLMO_END = "<function_calls>", "</function_calls>"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (f'{OLMO}get_weather(city="Paris"){OLMO_END}', WEATHER),
        (
            f'I look. {OLMO}\nget_weather(city="Paris")\nstop()\n{OLMO_END} Done.',
            [Text("I look."), *WEATHER, *STOP, Text(" Done.")],
        ),
        (f"{OLMO}stop(){OLMO_END}\n{OLMO}stop(){OLMO_END}\n", [*STOP, *STOP]),
        (f'{OLMO}{{"name": "stop", "arguments": {{}}}}\nstop(){OLMO_END}', [*STOP, *STOP]),
        (
            f"{OLMO}get(a=[true, {{'b': null}}], c=\"\\ud83d\\ude00\"){OLMO_END}",
            call("get", '{"a": [true, {"b": null}], "c": "😀"}'),
        ),
        # what breaks off, and what is none
        (f"{OLMO}stop()\n", STOP),
        (f"{OLMO}stop()\n{OLMO}stop()", [*STOP, *STOP]),
        (f"{OLMO}stop()\ngo()\n{OLMO_END}", [*STOP, Text(f"\ngo()\n{OLMO_END}")]),
        (f"{OLMO}stop()\nget", [*STOP, Text("\nget")]),
        (f"{OLMO}go(){OLMO_END}", [Text(f"{OLMO}go(){OLMO_END}")]),
        ("stop()", [Text("stop()")]),
    ],
)
def test_olmo3(text: str, events: list[ToolEvent]) -> None:
    assert parsed(OLMO3, text) == parsed(OLMO3, *text) == events


def test_half_a_character_in_a_value_stays_an_escape() -> None:
    """It is no text that could be sent."""
    assert parsed(OLMO3, f"{OLMO}get(a='\\ud83d')") == call("get", '{"a": "\\ud83d"}')


MARKS = sorted({mark for notation in NOTATIONS.values() for mark in notation.markers})
PYTHON = ["get(", "stop()", "a=", "'b'", ")", "call:get{", "functions.get:0"]
INVOKES = ['get">', '<parameter name="a">', '<parameter name="b" string="false">', f'<{DSML}parameter name="c">']
TAGS = [
    *INVOKES,
    "<function=",
    ">",
    "<parameter=a>",
    "</parameter>",
    "</function>",
    "<arg_key>",
    "</arg_key>",
    "</arg_value>",
]
SIGNS = [
    *'[]{},;:"\\ \n',
    "{}",
    "text",
    "get",
    "stop",
    "12",
    "null",
    "é",
    '"name"',
    '"stop"',
    '"arguments"',
    '"parameters"',
    '"id"',
]
WHOLE = [
    '{"name": "get", "arguments": {"a": [1, "\\u00e9"]}}',
    '{"arguments": {"b": "</tool_call>"}, "name": "stop"}',
]
TAGGED = [QWEN3_CODER, GLM45, MINIMAX_M2, DEEPSEEK_V32, DEEPSEEK_V4]
TEXTS = st.lists(st.sampled_from([*MARKS, *TAGS, *PYTHON, *SIGNS, *WHOLE]), max_size=12).map("".join)


@given(st.sampled_from(list(NOTATIONS.values())), TEXTS, st.lists(st.integers(0, 80), max_size=8))
@settings(max_examples=500)
def test_any_cut_gives_the_same(notation: Notation, text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert parsed(notation, *pieces) == parsed(notation, text) == parsed(notation, *text)


@given(st.sampled_from(list(NOTATIONS.values())), TEXTS)
@settings(max_examples=500)
def test_what_is_no_call_is_given_as_it_is(notation: Notation, text: str) -> None:
    """Nothing is lost: without calls the text is whole, and arguments and texts stand in it in their order."""
    events = parsed(notation, text)
    if not any(isinstance(event, CallBegin) for event in events):
        assert events == ([Text(text)] if text else [])
    if notation in (*TAGGED, PYTHONIC, LFM2, OLMO3, GEMMA4):
        return  # arguments that are no JSON are written anew
    place = 0
    for event in events:
        piece = event.name if isinstance(event, CallBegin) else event.text
        if isinstance(event, CallBegin) or piece == "{}":
            continue  # a name may stand behind the arguments; arguments of none are made up
        place = text.index(piece, place) + len(piece)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(list(NOTATIONS.values())),
    st.lists(
        st.tuples(st.sampled_from(sorted(NAMES)), st.dictionaries(st.text(max_size=6), JSON, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_calls_come_out_as_they_went_in(
    notation: Notation, calls: list[tuple[str, dict[str, object]]], is_ascii: bool
) -> None:
    written = [(name, json.dumps(arguments, ensure_ascii=is_ascii)) for name, arguments in calls]
    expected = [event for name, text in written for event in call(name, text)]
    assert parsed(notation, in_objects(notation, written)) == expected


KEYS = st.text("abcé _", max_size=6).map(str.strip)
UNTAGGED = st.text(max_size=12).filter(lambda text: "</" not in text)
TEXTS_IN_TAGS = st.dictionaries(KEYS.map("s{}".format), UNTAGGED, max_size=2)
OTHERS_IN_TAGS = st.dictionaries(KEYS.map("o{}".format), JSON.filter(lambda one: not isinstance(one, str)), max_size=2)
IN_TAGS = st.builds(lambda texts, others: texts | others, TEXTS_IN_TAGS, OTHERS_IN_TAGS)


@given(
    st.sampled_from(TAGGED),
    st.lists(st.tuples(st.sampled_from(["get", "stop"]), IN_TAGS), min_size=1, max_size=3),
)
def test_arguments_in_tags_come_out_as_they_went_in(
    notation: Notation, calls: list[tuple[str, dict[str, object]]]
) -> None:
    keys = {key for _, arguments in calls for key in arguments}
    schema = {"properties": {key: {"type": "string" if key.startswith("s") else "object"} for key in keys}}
    parser = CallParser(notation, {"get": schema, "stop": schema})
    events = joined([*parser.feed(in_tags(notation, calls)), *parser.end()])
    names = [event.name for event in events if isinstance(event, CallBegin)]
    found = [json.loads(event.text) for event in events if isinstance(event, Arguments)]
    assert list(zip(names, found, strict=True)) == calls
    assert parser.has_whole_calls


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "12", '"12"'),
        ({"type": "string"}, "null", '"null"'),
        ({"type": "integer"}, "12", "12"),
        ({"type": "integer"}, " 12\n", "12"),
        ({"type": "integer"}, "twelve", '"twelve"'),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "true", "true"),
        ({"type": "boolean"}, "False", "false"),
        ({"type": ["integer", "null"]}, "None", "null"),
        ({"type": "string"}, "None", '"None"'),
        ({"type": "object"}, '{"a": [1]}', '{"a": [1]}'),
        ({"type": ["integer", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "null", '"null"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", "3"),
        ({"enum": [1, 2]}, "2", "2"),
        ({"enum": ["a", 2]}, "2", '"2"'),
        ({}, "12", '"12"'),
    ],
)
def test_a_schema_says_whether_a_text_is_a_string(schema: dict[str, object], text: str, value: str) -> None:
    parser = CallParser(GLM45, {"get": {"properties": {"a": schema}}})
    events = parser.feed(f"<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>")
    assert events == [CallBegin("get"), Arguments(f'{{"a": {value}}}')]


def test_text_is_held_no_longer_than_it_may_begin_a_call() -> None:
    parser = CallParser(HERMES, NAMES)
    assert parser.feed("I look") == [Text("I look")]
    assert parser.feed(" ") == []
    assert parser.feed("up <") == [Text(" up")]
    assert parser.feed("tool") == []
    assert parser.feed("s") == [Text(" <tools")]
    assert parser.feed('<tool_call>{"name": "x') == [Text('<tool_call>{"name": "x')]


def test_a_json_answer_is_told_from_a_call_at_its_first_key() -> None:
    parser = CallParser(LLAMA3_JSON, NAMES)
    assert parser.feed('{"n') == []
    assert parser.feed("u") == [Text('{"nu')]


def test_arguments_come_in_pieces() -> None:
    parser = CallParser(HERMES, NAMES)
    assert parser.feed('<tool_call>{"name": "get", "arguments": {') == [CallBegin("get"), Arguments("{")]
    assert parser.feed('"city": "Pa') == [Arguments('"city": "Pa')]
    assert not parser.has_whole_calls
    assert parser.feed('ris"}') == [Arguments('ris"}')]
    assert (parser.num_calls, parser.has_whole_calls) == (1, True)
    assert parser.feed("}</tool_call>") == parser.end() == []


def test_a_call_that_breaks_off_is_not_whole() -> None:
    parser = CallParser(HERMES, NAMES)
    parser.feed('<tool_call>{"name": "stop"}</tool_call><tool_call>{"name": "get", "arguments": {"a"')
    parser.end()
    assert (parser.num_calls, parser.has_whole_calls) == (2, False)


@pytest.mark.parametrize(
    "text", [" " * 400_000, "word " * 80_000, "<a" * 200_000, '<tool_call>{"arguments":{"a":"' + "b" * 400_000]
)
def test_long_outputs_take_time_in_proportion(text: str) -> None:
    """A quadratic way would take minutes."""
    assert sum(len(event.text) for event in parsed(HERMES, text) if isinstance(event, Text)) == len(text)
