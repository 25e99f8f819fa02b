"""The body of ``POST /v1/responses``.

A conversation goes on by sending its items again (what prefix caches have of it is not computed again), or, where
answers are kept, by naming the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, TypeAdapter, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError, without_inert
from gateway.openai.requests.sampling import DrawFields
from gateway.openai.requests.schema import (
    MAX_MESSAGES,
    MAX_NAME_CHARACTERS,
    MAX_TOP_LOGPROBS,
    CacheSalt,
    GivenSlo,
    Id,
    Metadata,
    TemplateSettings,
)
from gateway.openai.requests.tools import MAX_TOOLS
from gateway.openai.requests.translated import TranslatedRequest
from gateway.responses.requests.items import GivenItem, InputItem
from gateway.responses.requests.kept_conversation import KeptConversation
from gateway.responses.requests.options import FunctionTool, GivenFunctionChoice, ReasoningOptions, TextOptions
from gateway.responses.requests.turns import Turns

INERT_FIELDS: dict[str, list[Any]] = {
    "background": [False],
    "conversation": [],
    "prompt": [],
    "prompt_cache_retention": ["in_memory", "in-memory"],
    "service_tier": ["auto", "default"],
    "truncation": ["disabled"],
}
"""Fields of OpenAI's that are not supported, with the values that ask for nothing."""

INSTEAD_FIELDS = {"conversation": "input"}

Includable = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
"""Of tools that are not there, so that they ask for nothing, but for `LOGPROBS`; and thoughts are told openly."""
LOGPROBS: Includable = "message.output_text.logprobs"


class ResponseStreamOptions(ApiObject):
    """How a stream is sent."""

    include_queue: bool = False
    """As for chats: while the request waits, comments tell its place in the queue."""
    include_obfuscation: bool = False
    """Taken and not used."""


def _items(value: Any) -> Any:
    """Checked here and not by a union, whose errors would name its branches and not the field."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class ResponsesRequest(TranslatedRequest, DrawFields):
    """A conversation as items, and how it shall be answered."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    input: Annotated[
        list[GivenItem],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
        BeforeValidator(_items, json_schema_input_type=str | list[InputItem]),
    ]
    """What was said and done so far; a string is what the user says."""
    previous_response_id: Id | None = None
    """The answer that this goes on from: all items up to it stand before ``input``, its instructions do not."""
    instructions: str | None = None
    """Of the system, before all items."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens of the answer, thoughts included; without it, what fits into the model's context."""
    text: TextOptions | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    tool_choice: GivenFunctionChoice | None = None
    parallel_tool_calls: bool = True
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    """Taken and not used: it counts calls of OpenAI's own tools."""
    reasoning: ReasoningOptions | None = None
    include: list[Includable] = Field(default_factory=list, max_length=16)
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    """The most likely tokens at each place of a text, where `include` asks for logprobs."""
    stream: bool = False
    stream_options: ResponseStreamOptions | None = None
    chat_template_kwargs: TemplateSettings = Field(default_factory=dict)
    slo: GivenSlo | None = None
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    metadata: Metadata | None = None
    """Told again in the answer."""
    store: bool | None = None
    """``false``: not to be kept."""
    user: Id | None = None
    prompt_cache_key: Id | None = None
    safety_identifier: Id | None = None

    _earlier: list[InputItem] | None = PrivateAttr(default=None)
    _conversation: KeptConversation | None = PrivateAttr(default=None)

    @property
    def conversation(self) -> KeptConversation | None:
        """Where the answer is to be kept; None where it is not."""
        return self._conversation

    def keep_in(self, conversation: KeptConversation) -> None:
        """Have the answer kept."""
        self._conversation = conversation

    @property
    def is_whole(self) -> bool:
        """See `TranslatedRequest`."""
        return self.previous_response_id is None or self._earlier is not None

    def go_on(self, items: Sequence[Any]) -> None:
        """``items`` stand before its own. Raises as validating a body does."""
        self._earlier = _ITEMS.validate_python(items)
        assert self.chat is not None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return without_inert(data, INERT_FIELDS, INSTEAD_FIELDS) if isinstance(data, dict) else data

    def chat_fields(self) -> dict[str, Any]:
        """See `TranslatedRequest`."""
        if self.stream_options is not None and not self.stream:
            raise FieldConflictError("stream_options", "stream_options is only allowed when stream is true")
        if self.top_logprobs and not self.tells_logprobs:
            raise FieldConflictError("top_logprobs", f"top_logprobs is only allowed with {LOGPROBS!r} in include")
        given = self.model_fields_set
        fields = {name: getattr(self, name) for name in given & (DrawFields.model_fields.keys() | _AS_THEY_ARE)}
        fields["messages"] = self._turns.messages
        fields["tools"] = [tool.chat_field() for tool in self.tools]
        fields["max_completion_tokens"] = self.max_output_tokens
        if self.tool_choice is not None:
            fields["tool_choice"] = self.tool_choice.chat_field()
        if self.text is not None and self.text.format is not None:
            fields["response_format"] = self.text.format.chat_field()
        if self.reasoning is not None:
            fields["reasoning_effort"] = self.reasoning.effort
        if self.tells_logprobs:
            fields |= {"logprobs": True, "top_logprobs": self.top_logprobs}
        if self.stream_options is not None:
            fields["stream_options"] = {"include_queue": self.stream_options.include_queue}
        return fields

    @property
    def tells_logprobs(self) -> bool:
        """Whether texts come with the logprobs of their tokens."""
        return LOGPROBS in self.include

    def own_name(self, field: str) -> str:
        """See `TranslatedRequest`."""
        if (found := re.fullmatch(r"messages\[(\d+)\](.*)", field)) is not None:
            return self._own_name_of_turn(int(found[1]), found[2])
        head, point, rest = field.partition(".")
        if head == "response_format":
            return "text.format" + (".schema" if rest.startswith("json_schema.schema") else "")
        if head.startswith("tools["):
            return head + point + rest.removeprefix("function.")
        return _OWN_NAMES.get(head, head) + point + rest

    def _own_name_of_turn(self, number: int, rest: str) -> str:
        call = re.fullmatch(r"\.tool_calls\[(\d+)\]\.(?:function\.)?(.*)", rest)
        if call is not None:
            return f"{self._turns.call_origins[number, int(call[1])]}.{'call_id' if call[2] == 'id' else call[2]}"
        own = rest.replace(".tool_call_id", ".call_id").replace(".image_url.url", ".image_url")
        return self._turns.origins[number] + own

    @cached_property
    def _turns(self) -> Turns:
        turns = Turns()
        if self.instructions is not None:
            turns.say("system", self.instructions, "instructions")
        for item in self._earlier or ():
            turns.add(item, "previous_response_id")
        for number, item in enumerate(self.input):
            turns.add(item, f"input[{number}]")
        turns.end()
        return turns


_ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(list[GivenItem])

_AS_THEY_ARE = {
    "model",
    "parallel_tool_calls",
    "stream",
    "chat_template_kwargs",
    "slo",
    "cache_salt",
    "metadata",
    "store",
    "user",
    "prompt_cache_key",
    "safety_identifier",
}
"""Fields that a chat has under the same name."""

_OWN_NAMES = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}
