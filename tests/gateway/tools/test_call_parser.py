"""Texts of outputs, and the texts and calls that they are, in each family's notation."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.call_parser import CallParser
from gateway.tools.events import Arguments, CallBegin, Text, ToolEvent, joined
from gateway.tools.notation import HERMES, LLAMA3_JSON, MISTRAL, NOTATIONS, Notation

NAMES = ["get_weather", "get", "stop"]


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


MARKS = ["<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]"]
SIGNS = [*'[]{},;:"\\ \n', "{}", "text", "12", "null", "é", '"name"', '"stop"', '"arguments"', '"parameters"', '"id"']
WHOLE = [
    '{"name": "get", "arguments": {"a": [1, "\\u00e9"]}}',
    '{"arguments": {"b": "</tool_call>"}, "name": "stop"}',
]
TEXTS = st.lists(st.sampled_from([*MARKS, *SIGNS, *WHOLE]), max_size=12).map("".join)


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
        st.tuples(st.sampled_from(NAMES), st.dictionaries(st.text(max_size=6), JSON, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_calls_come_out_as_they_went_in(
    notation: Notation, calls: list[tuple[str, dict[str, object]]], is_ascii: bool
) -> None:
    written = [json.dumps(arguments, ensure_ascii=is_ascii) for _, arguments in calls]
    objects = [
        f'{{"name": "{name}", "{notation.arguments_key}": {text}}}'
        for (name, _), text in zip(calls, written, strict=True)
    ]
    if notation.is_list:
        output = f"{notation.begin} [{', '.join(objects)}]"
    elif notation.is_bare:
        output = "; ".join(objects)
    else:
        output = "\n".join(f"{notation.begin}\n{one}\n{notation.end}" for one in objects)
    expected = [event for (name, _), text in zip(calls, written, strict=True) for event in call(name, text)]
    assert parsed(notation, output) == expected


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
