"""Functions that a client has, and what it says of calls: ``tools``, ``tool_choice``, and calls in earlier turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError
from gateway.openai.requests.half_characters import without_halves
from gateway.openai.requests.structured_output import FUNCTION_NAME, schema_text

MAX_TOOLS = 128  # as OpenAI has it
MAX_TOOLS_CHARACTERS = 1 << 17  # of all of them together, as JSON
MAX_FUNCTION_DESCRIPTION_CHARACTERS = 1 << 15  # coding agents describe a tool on several pages
MAX_CALLS = 128  # of one turn
MAX_ARGUMENTS_CHARACTERS = 1 << 18  # of one call: coding agents write whole files so
MAX_CALL_ID_CHARACTERS = 256
MAX_DEPTH = 64  # of objects and lists in a function's parameters or a call's arguments


def shallow(value: dict[str, Any]) -> dict[str, Any]:
    """The same; `ValueError` for what is nested deeper than `MAX_DEPTH`."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
        level = [inner for inner in level if isinstance(inner, dict | list)]
        if not level:
            return value
    raise ValueError(f"it has more than {MAX_DEPTH} objects and lists in each other")


def _schema_of_object(value: Any) -> Any:
    schema_text(value)  # it is an object, and short enough
    if value.get("type", "object") != "object":
        raise ValueError("parameters are described by a schema whose type is 'object'")
    return shallow(value)


def _arguments(text: str) -> str:
    arguments_of(text)
    return text


def arguments_of(text: str) -> dict[str, Any]:
    """A call's arguments; `ValueError` for what is no JSON object. Half a character, as models write it, is U+FFFD."""
    try:
        value = msgspec.json.decode(without_halves(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("arguments are the text of a JSON object") from error
    if not isinstance(value, dict):
        raise ValueError("arguments are the text of a JSON object")
    return shallow(value)


FunctionName = Annotated[str, Field(pattern=FUNCTION_NAME)]
CallArguments = Annotated[str, Field(max_length=MAX_ARGUMENTS_CHARACTERS), AfterValidator(_arguments)]
FunctionDescription = Annotated[str, Field(max_length=MAX_FUNCTION_DESCRIPTION_CHARACTERS)]
CallId = Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_CHARACTERS)]


class Function(ApiObject):
    """A function that the model may call."""

    name: FunctionName
    description: FunctionDescription | None = None
    parameters: Annotated[dict[str, Any], BeforeValidator(_schema_of_object)] | None = None
    """A JSON schema of an object; without it, it takes none."""
    strict: bool | None = None
    """Taken and not used: calls that are forced are of the schema, and others are the model's own."""

    def told(self) -> dict[str, Any]:
        """As chat templates expect it."""
        return {
            "name": self.name,
            "description": self.description or "",
            "parameters": self.parameters or {"type": "object", "properties": {}},
        }


class Tool(ApiObject):
    """One of the ``tools``."""

    type: Literal["function"]
    function: Function


class NamedFunction(ApiObject):
    """A function by its name."""

    name: FunctionName


class NamedTool(ApiObject):
    """A ``tool_choice`` of one function."""

    type: Literal["function"]
    function: NamedFunction


class TurnFunction(ApiObject):
    """What a turn's call called."""

    name: FunctionName
    arguments: CallArguments
    """A JSON object, as text."""


class TurnCall(ApiObject):
    """A call in a turn of the assistant."""

    id: CallId
    type: Literal["function"]
    function: TurnFunction


Way = Literal["none", "auto", "required"]


class ToolChoice(ApiObject):
    """Whether functions are called, or which: what clients write as a word, or as `NamedTool`."""

    type: Literal["none", "auto", "required", "function"]
    function: NamedFunction | None = None

    @model_validator(mode="after")
    def _function_where_its_type_says_so(self) -> ToolChoice:
        if (self.type == "function") != (self.function is not None):
            raise ValueError("function is given where type is 'function', and only there")
        return self


def _choice(value: Any) -> Any:
    """Errors of a union would name its branches and not the field."""
    if isinstance(value, dict) and value.get("type", "function") != "function":
        raise ValueError("an object names a function: {'type': 'function', 'function': {'name': …}}")
    if isinstance(value, str) and value not in get_args(Way):
        raise ValueError("it is 'none', 'auto', 'required', or an object that names a function")
    return {"type": value} if isinstance(value, str) else value


GivenToolChoice = Annotated[ToolChoice, BeforeValidator(_choice, json_schema_input_type=Way | NamedTool)]


def check_tools(tools: Sequence[Tool], choice: ToolChoice | None) -> None:
    """`FieldConflictError` for two functions of one name, too much in all, or a choice of what is not there."""
    names: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.function.name in names:
            raise FieldConflictError(f"tools[{number}].function.name", f"{tool.function.name!r} is there twice")
        names.add(tool.function.name)
    num_characters = sum(map(num_told_characters, tools))
    if num_characters > MAX_TOOLS_CHARACTERS:
        text = f"tools have at most {MAX_TOOLS_CHARACTERS} characters together, not {num_characters}"
        raise FieldConflictError("tools", text)
    if choice is not None and choice.type != "none" and not tools:
        raise FieldConflictError("tool_choice", "tool_choice is only allowed with tools")
    if choice is not None and choice.function is not None and choice.function.name not in names:
        raise FieldConflictError("tool_choice", f"there is no function {choice.function.name!r} in tools")


def num_told_characters(tool: Tool) -> int:
    """Of what the model is told about it, nearly."""
    function = tool.function
    parameters = 0 if function.parameters is None else len(msgspec.json.encode(function.parameters))
    return len(function.name) + len(function.description or "") + parameters
