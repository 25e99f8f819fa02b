"""Items of a conversation as the Responses API has them: messages, calls, their results, and thoughts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.tools import CallArguments, CallId, FunctionName
from gateway.responses.requests.parts import MessageParts, TextParts, chat_content, joined

MAX_ITEM_ID_CHARACTERS = 256


class _Item(ApiObject):
    id: Annotated[str, Field(max_length=MAX_ITEM_ID_CHARACTERS)] | None = None
    """Taken and not used, like the next."""
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class InputMessage(_Item):
    """What one of them says; an item without a type is one."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: MessageParts
    phase: Literal["commentary", "final_answer"] | None = None
    """Taken and not used."""

    @property
    def chat_content(self) -> str | list[dict[str, Any]]:
        """Its texts as one, or its parts where there are images among them."""
        return chat_content(self.content)


class InputCall(_Item):
    """A call of the assistant's."""

    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    """Of the function that was called."""
    arguments: CallArguments


class InputCallOutput(_Item):
    """What a call has given."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: TextParts

    @property
    def text(self) -> str:
        """Its parts as one."""
        return joined(self.output)


class InputReasoning(_Item):
    """Thoughts of the assistant's."""

    type: Literal["reasoning"]
    content: TextParts = Field(default_factory=list)
    summary: TextParts = Field(default_factory=list)
    """Used where there is no ``content``."""
    encrypted_content: str | None = None
    """Taken and not used: what another server keeps secret says nothing here."""

    @property
    def text(self) -> str:
        """What was thought; ``""`` where it is not told."""
        return joined(self.content) or joined(self.summary)


def _refused(kind: str) -> str:
    """Only words of OpenAI's are repeated: what else a client wrote may be long."""
    if kind == "item_reference":
        return "nothing is kept of an answer: send the item itself again"
    is_known = kind.startswith("mcp_") or kind.endswith(("_call", "_call_output"))
    return f"items of type {kind!r} are not supported" if is_known and len(kind) < 64 else ""


InputItem = InputMessage | InputCall | InputCallOutput | InputReasoning
GivenItem = Annotated[
    InputItem, one_of("type", InputMessage, InputCall, InputCallOutput, InputReasoning, refused=_refused)
]
