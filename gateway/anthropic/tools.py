"""Tools that a client has, in Anthropic's words: what OpenAI calls functions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gateway.anthropic.content import CacheControl
from gateway.openai.objects.kinds import one_of
from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.tools import FunctionDescription, FunctionName

_MAX_TYPE_CHARACTERS = 64


class ClientTool(ApiObject):
    """A tool that the model may use and the client runs."""

    name: FunctionName
    description: FunctionDescription | None = None
    input_schema: dict[str, Any]
    """A JSON schema of an object."""
    type: Literal["custom"] = "custom"
    cache_control: CacheControl | None = None
    strict: bool | None = None
    """Taken and not used: calls that are forced are of the schema, and others are the model's own."""
    eager_input_streaming: bool | None = None
    """Taken and not used: a stream always has inputs as they are drawn."""

    def as_function(self) -> dict[str, Any]:
        """As a tool of a chat."""
        function = {"name": self.name, "description": self.description, "parameters": self.input_schema}
        return {"type": "function", "function": function}


def _of_server(kind: str) -> str:
    if len(kind) > _MAX_TYPE_CHARACTERS:
        return ""
    return f"tools of type {kind!r}, which a server runs, are not supported"


GivenTool = Annotated[ClientTool, one_of("type", ClientTool, refused=_of_server)]


class ToolUseChoice(ApiObject):
    """Whether tools are used, or which."""

    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    """Of the tool, where there is one."""
    disable_parallel_tool_use: bool = False
    """Whether an answer has one call at most."""

    @model_validator(mode="after")
    def _name_where_its_type_says_so(self) -> ToolUseChoice:
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("name is given where type is 'tool', and only there")
        return self

    @property
    def is_forced(self) -> bool:
        """Whether the answer is calls and nothing else."""
        return self.type in ("any", "tool")

    def as_chat(self) -> dict[str, Any]:
        """As fields of a chat."""
        words: dict[str, Any] = {"auto": "auto", "any": "required", "none": "none"}
        choice = words.get(self.type) or {"type": "function", "function": {"name": self.name}}
        return {"tool_choice": choice, "parallel_tool_calls": not self.disable_parallel_tool_use}


GivenTools = Annotated[list[GivenTool], Field(fail_fast=True)]
