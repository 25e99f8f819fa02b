"""Calls in outputs: any text in any cut, in each notation, against the same text as a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from gateway.tools.call_parser import CallParser
from gateway.tools.calls.call_reader import Functions
from gateway.tools.events import Arguments, CallBegin, Text, ToolEvent, joined
from gateway.tools.notation import NOTATIONS, Notation
from tests.fuzz.mutators import mutated_bytes
from tests.fuzz.target import Target, rule

_NOTATIONS = list(NOTATIONS.values())
_FUNCTIONS: Functions = {
    "get": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    "get_weather": None,
    "stop": None,
}
_PARTS = [
    *sorted({mark for notation in _NOTATIONS for mark in notation.markers}),
    *(
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        ":",
        '"',
        "\\",
        " ",
        "\n",
    ),
    *(
        '"name"',
        '"arguments"',
        '"parameters"',
        '"id"',
        '"stop"',
        '"get"',
        "{}",
        '{"a": [1, "\\u00e9"]}',
        "12",
        "null",
        "hm",
    ),
    '{"name": "get", "arguments": {"a": "b"}}',
    *("<function=", "get>", "<parameter=", "a>", "b>", "</parameter>", "</function>", "stop", "get"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
]
MAX_PARTS = 24


def _read(notation: Notation, pieces: Sequence[str]) -> tuple[list[ToolEvent], CallParser]:
    parser = CallParser(notation, _FUNCTIONS)
    return joined([*(event for piece in pieces for event in parser.feed(piece)), *parser.end()]), parser


def _check(data: bytes) -> bool:
    notation, size = (
        _NOTATIONS[data[0] % len(_NOTATIONS)] if data else _NOTATIONS[0],
        1 + (data[1] % 9 if data[1:] else 0),
    )
    text = data[2:].decode(errors="replace")
    events, parser = _read(notation, [text])
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    rule(_read(notation, pieces)[0] == events, "pieces give what the whole text gives")
    calls = [event.name for event in events if isinstance(event, CallBegin)]
    rule(len(calls) == parser.num_calls and set(calls) <= set(_FUNCTIONS), "calls are of functions that there are")
    if not calls:
        rule(events == ([Text(text)] if text else []), "what has no call is text as it is")
    if parser.has_whole_calls:
        last = next(event for event in reversed(events) if isinstance(event, Arguments))
        rule(isinstance(json.loads(last.text), dict), "arguments that are whole are an object")
    return bool(calls)


def _texts() -> Sequence[bytes]:
    call = b'{"name": "get", "arguments": {"a": "b\\n", "c": [1.5e3, null]}}'
    return [
        b"\x00\x03Look: <tool_call>\n" + call + b"\n</tool_call>\n<tool_call>" + call,
        b"\x01\x02" + call + b"; " + call,
        b"\x02\x04[TOOL_CALLS] [" + call + b", " + call + b"] done",
        b"\x00\x00a < b",
        b"\x01\x03<tool_call>\n<function=get>\n<parameter=b>\n12\n</parameter>\n</function>\n</tool_call>",
        b"\x02\x03<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        b"\x05\x03[TOOL_CALLS]get[CALL_ID]abc[ARGS]{} [TOOL_CALLS]stop[ARGS]{}",
        "\x07\x03<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>".encode(),
    ]


def mutated_calls(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """Neighbours, and as often a text made of what calls are made of."""
    if rng.random() < 0.5:
        return mutated_bytes(data, corpus, rng)
    text = "".join(rng.choices(_PARTS, k=rng.randint(0, MAX_PARTS)))
    return bytes([rng.randrange(len(_NOTATIONS)), rng.randrange(9)]) + text.encode()


TARGETS = [Target("calls of functions", _texts, _check, mutated_calls, share=30)]
