"""Turns as messages of a chat, each with what the client calls its fields.

A turn of the user with results becomes a message for each of them, and of what stands between them one of the user. A
turn of the assistant is one message, whose text comes before its calls, as in all chats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.anthropic.content import (
    AssistantTurn,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)

ERROR = "Error: "
"""What the result of a call that failed begins with, for the model: chats have no other place for it."""


@dataclass(frozen=True)
class NamedMessage:
    """A message of a chat."""

    fields: dict[str, Any]
    own: str
    """The client's own path of what it was made of."""
    names: dict[str, str] = field(default_factory=dict)
    """Paths of the client's by those within the message, where they are others."""


def messages_of(system: Sequence[TextBlock], turns: Sequence[UserTurn | AssistantTurn]) -> list[NamedMessage]:
    """The whole conversation; ``system`` is empty where nothing is said."""
    messages: list[NamedMessage] = []
    if system:
        messages.append(_spoken("system", _joined(system), "system", "system"))
    for number, turn in enumerate(turns):
        own = f"messages[{number}]"
        messages += _of_user(turn, own) if isinstance(turn, UserTurn) else [_of_assistant(turn, own)]
    return messages


def _spoken(role: str, text: str, own: str, content: str) -> NamedMessage:
    return NamedMessage({"role": role, "content": text}, own, {"content": content})


def _joined(blocks: Iterable[TextBlock]) -> str:
    return "".join(block.text for block in blocks)


def _of_user(turn: UserTurn, own: str) -> Iterator[NamedMessage]:
    said: list[tuple[int, TextBlock | ImageBlock]] = []
    for number, block in enumerate(turn.content):
        if not isinstance(block, ToolResultBlock):
            said.append((number, block))
            continue
        if said:
            yield _shown(said, own)
            said = []
        yield _result(block, f"{own}.content[{number}]")
    if said or not turn.content:
        yield _shown(said, own)


def _shown(blocks: Sequence[tuple[int, TextBlock | ImageBlock]], own: str) -> NamedMessage:
    """What the user says: one text, or parts where there are images among it."""
    texts = [block for _, block in blocks if isinstance(block, TextBlock)]
    if len(texts) == len(blocks):
        return _spoken("user", _joined(texts), own, f"{own}.content")
    parts = [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": block.url}}
        for _, block in blocks
    ]
    names = {"content": f"{own}.content"}
    for place, (number, _) in enumerate(blocks):
        names[f"content[{place}].image_url.url"] = f"{own}.content[{number}].source"
    return NamedMessage({"role": "user", "content": parts}, own, names)


def _result(block: ToolResultBlock, own: str) -> NamedMessage:
    text = (ERROR if block.is_error else "") + _joined(block.content)
    fields = {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}
    return NamedMessage(fields, own, {"tool_call_id": f"{own}.tool_use_id", "content": f"{own}.content"})


def _of_assistant(turn: AssistantTurn, own: str) -> NamedMessage:
    texts = [block for block in turn.content if isinstance(block, TextBlock)]
    thoughts = [block.thinking for block in turn.content if isinstance(block, ThinkingBlock)]
    calls = [(number, block) for number, block in enumerate(turn.content) if isinstance(block, ToolUseBlock)]
    fields: dict[str, Any] = {"role": "assistant"}
    names = {"content": f"{own}.content", "reasoning_content": f"{own}.content", "tool_calls": f"{own}.content"}
    if texts or not calls:
        fields["content"] = _joined(texts)
    if thoughts:
        fields["reasoning_content"] = "".join(thoughts)
    if calls:
        fields["tool_calls"] = [_call(block) for _, block in calls]
    for place, (number, _) in enumerate(calls):
        block_path = f"{own}.content[{number}]"
        names[f"tool_calls[{place}]"] = block_path
        names[f"tool_calls[{place}].function"] = block_path
        names[f"tool_calls[{place}].function.arguments"] = f"{block_path}.input"
    return NamedMessage(fields, own, names)


def _call(block: ToolUseBlock) -> dict[str, Any]:
    arguments = msgspec.json.encode(block.input).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}
