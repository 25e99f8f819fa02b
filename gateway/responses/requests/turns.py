"""Items as turns of a chat.

What the assistant did in a row is one turn of it: its thoughts, what it said, and the calls that followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.responses.requests.items import InputCall, InputCallOutput, InputItem, InputMessage, InputReasoning


@dataclass
class Turns:
    """Messages as `ChatMessage` takes them, and which items they were."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    """By message, the client's name of what says it: ``input[2]``."""
    call_origins: dict[tuple[int, int], str] = field(default_factory=dict)
    """The same by message and call."""
    _takes_more: bool = False
    """The last message is the assistant's, and its next item belongs to it."""

    def say(self, role: str, content: str | list[dict[str, Any]], origin: str) -> None:
        """A turn of any role but the assistant's."""
        self._begin({"role": role, "content": content}, origin)
        self._takes_more = False

    def add(self, item: InputItem, origin: str) -> None:
        """The next item of the conversation."""
        match item:
            case InputMessage(role="assistant"):
                turn = self._assistant(origin, but=("content", "tool_calls"))
                turn["content"] = item.chat_content
            case InputMessage():
                self.say(item.role, item.chat_content, origin)
            case InputReasoning():
                turn = self._assistant(origin, but=("content", "tool_calls", "reasoning_content"))
                turn["reasoning_content"] = item.text
            case InputCall():
                self._call(item, origin)
            case InputCallOutput():
                self._begin({"role": "tool", "content": item.text, "tool_call_id": item.call_id}, origin)
                self._takes_more = False

    def end(self) -> None:
        """No more items come: thoughts that led to nothing stand in a turn that says nothing."""
        for message in self.messages:
            if "reasoning_content" in message and not message.keys() & {"content", "tool_calls"}:
                message["content"] = ""

    def _call(self, item: InputCall, origin: str) -> None:
        turn = self._assistant(origin)
        calls = turn.setdefault("tool_calls", [])
        self.call_origins[len(self.messages) - 1, len(calls)] = origin
        function = {"name": item.name, "arguments": item.arguments}
        calls.append({"id": item.call_id, "type": "function", "function": function})

    def _assistant(self, origin: str, but: Sequence[str] = ()) -> dict[str, Any]:
        """The assistant's turn that goes on, unless it has what ``but`` names; else a new one."""
        if not self._takes_more or any(name in self.messages[-1] for name in but):
            self._begin({"role": "assistant"}, origin)
            self._takes_more = True
        return self.messages[-1]

    def _begin(self, message: dict[str, Any], origin: str) -> None:
        self.messages.append(message)
        self.origins.append(origin)
