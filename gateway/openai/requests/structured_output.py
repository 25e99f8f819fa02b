"""What an answer has to be: OpenAI's ``response_format`` and vLLM's ``structured_outputs``.

A schema is kept as JSON text: it is read where a grammar is made of it, and not here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.openai.objects.part import ApiObject
from shared.messages.requests.payload import Constraint

MAX_CONSTRAINT_CHARACTERS = 1 << 16  # of a schema, a regular expression, or all choices together
MAX_GRAMMAR_CHARACTERS = 1 << 14  # fewer: llama.cpp's notation is rewritten in a time that grows with their square
MAX_CHOICES = 1024
MAX_DESCRIPTION_CHARACTERS = 4096
FUNCTION_NAME = r"^[a-zA-Z0-9_-]{1,64}$"  # as OpenAI has it, of formats and functions

ANY_OBJECT = '{"type":"object"}'


def schema_text(schema: Any) -> str:
    """The JSON of a schema that is an object; `ValueError` for other shapes, and for too long a one."""
    if not isinstance(schema, dict):
        raise ValueError("a schema is an object")
    try:
        text = msgspec.json.encode(schema).decode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if len(text) > MAX_CONSTRAINT_CHARACTERS:
        raise ValueError(f"as JSON it has at most {MAX_CONSTRAINT_CHARACTERS} characters, not {len(text)}")
    return text


def _schema_or_its_text(value: Any) -> Any:
    return value if isinstance(value, str) else schema_text(value)


def _short_together(choices: list[str]) -> list[str]:
    num_characters = sum(map(len, choices))
    if num_characters > MAX_CONSTRAINT_CHARACTERS:
        raise ValueError(f"together they have at most {MAX_CONSTRAINT_CHARACTERS} characters, not {num_characters}")
    return choices


SchemaText = Annotated[str, BeforeValidator(schema_text, json_schema_input_type=dict[str, Any])]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_CHARACTERS)]


class NamedSchema(ApiObject):
    """The schema of a ``response_format``."""

    name: Annotated[str, Field(pattern=FUNCTION_NAME)]
    """Taken and not used, like the description: neither is shown to the model."""
    description: Description | None = None
    schema_: SchemaText = Field(alias="schema")
    strict: bool | None = None
    """Taken and not used: every answer is of its schema."""


class ResponseFormat(ApiObject):
    """OpenAI's way to say it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _schema_where_its_type_says_so(self) -> ResponseFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema is given where type is 'json_schema', and only there")
        return self

    @property
    def constraint(self) -> Constraint | None:
        """None where any text will do."""
        if self.type == "text":
            return None
        return Constraint("json_schema", ANY_OBJECT if self.json_schema is None else self.json_schema.schema_)


class StructuredOutputs(ApiObject):
    """vLLM's way; exactly one of its fields is given."""

    json_: (
        Annotated[
            str,
            Field(max_length=MAX_CONSTRAINT_CHARACTERS),
            BeforeValidator(_schema_or_its_text, json_schema_input_type=dict[str, Any] | str),
        ]
        | None
    ) = Field(default=None, alias="json")
    json_object: Literal[True] | None = None
    regex: Annotated[str, Field(min_length=1, max_length=MAX_CONSTRAINT_CHARACTERS)] | None = None
    choice: (
        Annotated[
            list[Annotated[str, Field(min_length=1)]],
            Field(min_length=1, max_length=MAX_CHOICES),
            AfterValidator(_short_together),
        ]
        | None
    ) = None
    grammar: Annotated[str, Field(min_length=1, max_length=MAX_GRAMMAR_CHARACTERS)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> StructuredOutputs:
        if len(self.model_fields_set) != 1:
            raise ValueError("give exactly one of json, json_object, regex, choice, grammar")
        return self

    @property
    def constraint(self) -> Constraint:
        """Whichever is given."""
        if self.regex is not None:
            return Constraint("regex", self.regex)
        if self.choice is not None:
            return Constraint("choice", msgspec.json.encode(self.choice).decode())
        if self.grammar is not None:
            return Constraint("grammar", self.grammar)
        return Constraint("json_schema", ANY_OBJECT if self.json_ is None else self.json_)
