"""``text``, ``tools``, ``tool_choice`` and ``reasoning``: what a chat says with other objects around it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.effort import Effort
from gateway.openai.requests.structured_output import FUNCTION_NAME, Description, schema_text
from gateway.openai.requests.tools import Function, FunctionName, Way


def _schema(value: Any) -> Any:
    schema_text(value)  # it is an object, and short enough
    return value


class TextFormat(ApiObject):
    """What the answer's text has to be."""

    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str, Field(pattern=FUNCTION_NAME)] | None = None
    """Taken and not used, like the description: neither is shown to the model."""
    description: Description | None = None
    schema_: Annotated[dict[str, Any], BeforeValidator(_schema)] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    """Taken and not used: every answer is of its schema."""

    @model_validator(mode="after")
    def _schema_where_its_type_says_so(self) -> TextFormat:
        if self.type == "json_schema" and (self.schema_ is None or self.name is None):
            raise ValueError("a format of type 'json_schema' has a name and a schema")
        if self.type != "json_schema" and self.model_fields_set - {"type"}:
            raise ValueError(f"a format of type {self.type!r} has no other fields")
        return self

    def chat_field(self) -> dict[str, Any]:
        """As ``response_format``."""
        if self.schema_ is None:
            return {"type": self.type}
        return {"type": self.type, "json_schema": {"name": self.name, "schema": self.schema_}}


class TextOptions(ApiObject):
    """``text``."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None
    """The value that asks for nothing."""


class FunctionTool(Function):
    """One of the ``tools``; all of them are functions."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _is_a_function(cls, data: Any) -> Any:
        kind = data.get("type", "function") if isinstance(data, dict) else "function"
        if kind != "function":
            raise ValueError("only tools of type 'function' are supported")
        return data

    def chat_field(self) -> dict[str, Any]:
        """As one of a chat's ``tools``."""
        function = {name: getattr(self, name) for name in self.model_fields_set - {"type"}}
        return {"type": "function", "function": function}


class NamedFunctionTool(ApiObject):
    """A ``tool_choice`` of one function."""

    type: Literal["function"]
    name: FunctionName


class FunctionChoice(ApiObject):
    """Whether functions are called, or which: what clients write as a word, or as `NamedFunctionTool`."""

    type: Literal["none", "auto", "required", "function"]
    name: FunctionName | None = None

    @model_validator(mode="after")
    def _name_where_its_type_says_so(self) -> FunctionChoice:
        if (self.type == "function") != (self.name is not None):
            raise ValueError("name is given where type is 'function', and only there")
        return self

    def chat_field(self) -> str | dict[str, Any]:
        """As a chat's ``tool_choice``."""
        return self.type if self.name is None else {"type": self.type, "function": {"name": self.name}}

    def told(self) -> str | dict[str, str]:
        """As the client wrote it."""
        return self.type if self.name is None else {"type": self.type, "name": self.name}


def _choice(value: Any) -> Any:
    """Errors of a union would name its branches and not the field."""
    if isinstance(value, dict) and value.get("type", "function") != "function":
        raise ValueError("an object names a function: {'type': 'function', 'name': …}")
    if isinstance(value, str) and value not in get_args(Way):
        raise ValueError("it is 'none', 'auto', 'required', or an object that names a function")
    return {"type": value} if isinstance(value, str) else value


GivenFunctionChoice = Annotated[
    FunctionChoice, BeforeValidator(_choice, json_schema_input_type=Way | NamedFunctionTool)
]


class ReasoningOptions(ApiObject):
    """``reasoning``: how much a model thinks, where its chat template lets clients say that."""

    effort: Effort | None = None
    """As a chat's ``reasoning_effort``."""
    summary: Literal["auto"] | None = None
    """The value that asks for nothing: thoughts are told whole."""
