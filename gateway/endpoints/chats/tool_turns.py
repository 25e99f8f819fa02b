"""A conversation, and the functions that may be called in it, as chat templates expect them.

Whatever a client wrote is hidden from the search for control tokens: names, descriptions and schemas as well as texts.
Arguments of calls are read first: what stands in their JSON as an escape is hidden as the character that it means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.endpoints.chats.picture_turns import MARK, without_marks
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from gateway.openai.requests.chat_messages import ChatMessage, TextPart
from gateway.openai.requests.tools import Tool, TurnCall, arguments_of

Hide = Callable[[str], str]


class TurnArguments(dict[str, Any]):
    """A call's arguments: an object, and its JSON where a template writes them as the text that OpenAI's API has."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, text: str) -> str:
        return str(self) + text

    def __radd__(self, text: str) -> str:
        return text + str(self)


def told_tools(tools: Iterable[Tool], tokenizer: PromptTokenizer) -> list[dict[str, Any]]:
    """Functions as OpenAI's API has them."""
    return [{"type": "function", "function": _hidden(tool.function.told(), tokenizer.user_text)} for tool in tools]


def turns(
    messages: Sequence[ChatMessage],
    tokenizer: PromptTokenizer,
    *,
    with_none: bool = False,
    with_thinking: bool = False,
) -> list[dict[str, Any]]:
    """Messages with all their fields; arguments are objects, which templates write as JSON or piece by piece.

    ``with_none``: calls without a text have no content, and not an empty one. ``with_thinking``: that is what thoughts
    are called.
    """
    hide = tokenizer.user_text
    spoken = [_turn(message, lambda text: hide(without_marks(text)), with_none=with_none) for message in messages]
    return [_with_thinking(turn) for turn in spoken] if with_thinking else spoken


def _with_thinking(turn: dict[str, Any]) -> dict[str, Any]:
    """What was said before a call stands behind its thoughts: such templates take one of both beside calls."""
    thoughts = turn.pop("reasoning_content", None)
    if thoughts is None:
        return turn
    if not turn.get("tool_calls") or not turn["content"]:
        return turn | {"thinking": thoughts}
    return turn | {"thinking": f"{thoughts}\n\n{turn['content']}", "content": ""}


def _turn(message: ChatMessage, hide: Hide, *, with_none: bool) -> dict[str, Any]:
    # OpenAI renamed its system role for newer models; templates of open models know the old name only
    role = "system" if message.role == "developer" else message.role
    has_none = with_none and message.tool_calls and not message.text
    turn: dict[str, Any] = {"role": role, "content": None if has_none else _content(message, hide)}
    if message.name is not None:
        turn["name"] = hide(message.name)
    if message.reasoning_content is not None:
        turn["reasoning_content"] = hide(message.reasoning_content)
    if message.tool_calls:
        turn["tool_calls"] = [_call(call, hide) for call in message.tool_calls]
    if message.tool_call_id is not None:
        turn["tool_call_id"] = hide(message.tool_call_id)
    return turn


def _content(message: ChatMessage, hide: Hide) -> str:
    """Its text, with a mark in the place of each image."""
    if not isinstance(message.content, list):
        return hide(message.text)
    return "".join(hide(part.text) if isinstance(part, TextPart) else MARK for part in message.content)


def _call(call: TurnCall, hide: Hide) -> dict[str, Any]:
    arguments = _hidden(arguments_of(call.function.arguments), hide)
    function = {"name": hide(call.function.name), "arguments": TurnArguments(arguments)}
    return {"id": hide(call.id), "type": "function", "function": function}


def _hidden(value: Any, hide: Hide) -> Any:
    """All texts in it, keys included; it is not deep."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): _hidden(inner, hide) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner, hide) for inner in value]
    return value
