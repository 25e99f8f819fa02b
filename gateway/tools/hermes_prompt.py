"""Functions for a model whose chat template knows of none: told in the system message, in the form of Hermes.

What the assistant has called stands in its turns as a model of that family writes it, and results stand in turns of the
user, one behind the other where they follow each other: such a template knows no other roles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.tools.notation import HERMES

_TOLD = """\
You can call functions. These are the ones that there are, a line of JSON each:
<tools>
{functions}
</tools>
To call one, answer with a JSON object that has its name and its arguments, between marks, and once for each call:
{begin}
{{"name": "the function's name", "arguments": {{"a parameter": "its value"}}}}
{end}"""


def with_hermes(messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with nothing in it but roles and texts; ``tools`` are those that may be called."""
    turns: list[dict[str, Any]] = []
    is_result = False
    for message in messages:
        was_result, is_result = is_result, message["role"] == "tool"
        if not is_result:
            turns.append(_spoken(message))
        elif was_result:
            turns[-1]["content"] += f"\n{_result(message)}"
        else:
            turns.append({"role": "user", "content": _result(message)})
    return _told(turns, tools) if tools else turns


def _told(turns: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    functions = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _TOLD.format(functions=functions, begin=HERMES.begin, end=HERMES.end)
    if turns and turns[0]["role"] == "system":
        first = turns[0] | {"content": f"{turns[0]['content']}\n\n{text}"}
        return [first, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]


def _spoken(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    calls = [_call(call["function"]) for call in message.get("tool_calls", ())]
    kept["content"] = "\n".join([kept["content"], *calls] if kept["content"] else calls)
    return kept


def _call(function: Mapping[str, Any]) -> str:
    written = json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)
    return f"{HERMES.begin}\n{written}\n{HERMES.end}"


def _result(message: Mapping[str, Any]) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"
