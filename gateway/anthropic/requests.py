"""Requests of Anthropic's Messages API as far as Treadle has them, each read as a chat.

The rules are those of `gateway.openai.requests.schema`: what would change an answer and is not there is refused by
name, and so is an unknown field; ``null`` means "not given"; types are strict. `metadata`, `cache_control`,
`service_tier` and `signature` are taken and not used: none of them changes the answer.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gateway.anthropic.content import AssistantTurn, CacheControl, Texts, Turn
from gateway.anthropic.tools import GivenTools, ToolUseChoice
from gateway.anthropic.turns import NamedMessage, messages_of
from gateway.openai.objects.part import ApiObject, FieldConflictError, without_inert
from gateway.openai.requests.schema import (
    MAX_MESSAGES,
    MAX_NAME_CHARACTERS,
    MAX_STOP_STRINGS,
    CacheSalt,
    GivenSlo,
    Id,
    StopString,
)
from gateway.openai.requests.tools import MAX_TOOLS
from gateway.openai.requests.translated import TranslatedRequest

MIN_BUDGET_TOKENS = 1024  # as Anthropic has it

_KEPT_THOUGHTS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}

UNSUPPORTED: dict[str, list[Any]] = {
    "container": [],
    "context_management": [{"edits": []}, _KEPT_THOUGHTS],
    "diagnostics": [],
    "inference_geo": [],
    "mcp_servers": [[]],
    "speed": ["standard"],
    "user_profile_id": [],
    "workspace_id": [],
}
"""Fields of Anthropic's that are not supported, with the values that ask for nothing."""

_OWN_NAMES = [  # of fields of a chat that are called otherwise; the longer one counts
    (re.compile(r"^stop\b"), "stop_sequences"),
    (re.compile(r"^tools(\[\d+\])\.function\.parameters\b"), r"tools\1.input_schema"),
    (re.compile(r"^tools(\[\d+\])\.function\b"), r"tools\1"),
    (re.compile(r"^parallel_tool_calls\b"), "tool_choice.disable_parallel_tool_use"),
    (re.compile(r"^chat_template_kwargs\b"), "thinking"),
    (re.compile(r"^response_format\.json_schema\.schema\b"), "output_config.format.schema"),
    (re.compile(r"^response_format\b"), "output_config.format"),
]


class ThinkingChoice(ApiObject):
    """Whether the model thinks before it answers."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Field(ge=MIN_BUDGET_TOKENS)] | None = None
    """How much; taken and not kept: the model ends its thoughts, or ``max_tokens`` does."""
    display: Literal["summarized", "omitted"] | None = None
    """Whether the answer has the thoughts, or blocks without text in their place; they are never shortened."""

    @model_validator(mode="after")
    def _budget_where_its_type_says_so(self) -> ThinkingChoice:
        if (self.type == "enabled") != (self.budget_tokens is not None):
            raise ValueError("budget_tokens is given where type is 'enabled', and only there")
        if self.type == "disabled" and self.display is not None:
            raise ValueError("display is for thoughts, and type is 'disabled'")
        return self


class OutputFormat(ApiObject):
    """What an answer has to be."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(ApiObject):
    """How an answer is to be."""

    format: OutputFormat | None = None
    effort: Literal["high"] | None = None
    """``high`` is what it is without it; others are not supported."""


class RequestMetadata(ApiObject):
    """Which user asks; taken and not used."""

    user_id: Id | None = None


class Conversation(TranslatedRequest):
    """What requests for an answer and for a count have in common."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    system: Texts = Field(default_factory=list)
    """A text, or blocks of text."""
    tools: Annotated[GivenTools, Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """Tools that the model may use."""
    tool_choice: ToolUseChoice | None = None
    """Whether it does: without it, ``auto`` where there are tools."""
    thinking: ThinkingChoice | None = None
    """Without it, the model does as it does by itself."""
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return without_inert(data, UNSUPPORTED, {}) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _go_together(self) -> Conversation:
        choice, thinking = self.tool_choice, self.thinking
        if choice is not None and choice.is_forced and thinking is not None and thinking.type == "enabled":
            raise FieldConflictError("thinking", "thinking cannot be enabled with a tool_choice that asks for calls")
        return self

    @cached_property
    def named_messages(self) -> list[NamedMessage]:
        """The conversation as a chat has it."""
        return messages_of(self.system, self.messages)

    @property
    def is_last_turn_open(self) -> bool:
        """Whether it ends with a turn of the assistant, which an answer would have to go on with."""
        return isinstance(self.messages[-1], AssistantTurn)

    @property
    def wants_thoughts(self) -> bool | None:
        """None where nothing is said of them."""
        return None if self.thinking is None else self.thinking.type != "disabled"

    def chat_fields(self) -> dict[str, Any]:
        """The conversation; what is said of the answer is for the kinds of requests that have one."""
        fields: dict[str, Any] = {"model": self.model, "messages": [one.fields for one in self.named_messages]}
        if self.tools:
            fields["tools"] = [tool.as_function() for tool in self.tools]
        if self.tool_choice is not None:
            fields |= self.tool_choice.as_chat()
        if self.output_config is not None and self.output_config.format is not None:
            named = {"name": "answer", "schema": self.output_config.format.schema_}
            fields["response_format"] = {"type": "json_schema", "json_schema": named}
        return fields

    def own_name(self, field: str) -> str:
        """As Anthropic's API has it."""
        found = re.match(r"messages\[(\d+)\]\.?(.*)", field)
        if found is not None:
            return _name_in(self.named_messages[int(found[1])], found[2])
        for pattern, own in _OWN_NAMES:
            if pattern.search(field):
                return pattern.sub(own, field, count=1)
        return field


class MessagesRequest(Conversation):
    """``POST /v1/messages``."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] = Field(default_factory=list)
    stream: bool = False
    temperature: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Keep the k most likely tokens; 0 keeps all."""
    metadata: RequestMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    """Taken and not used."""
    slo: GivenSlo | None = None
    """Treadle's own: the promise asked for, a class's name, or numbers."""
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    """Treadle's own: what is cached of this prompt is found by requests with the same salt alone."""

    @model_validator(mode="after")
    def _there_is_something_to_answer(self) -> MessagesRequest:
        if self.is_last_turn_open:
            text = "the last turn is the user's: answers that go on with a turn of the assistant are not supported"
            raise FieldConflictError(f"messages[{len(self.messages) - 1}].role", text)
        budget_tokens = None if self.thinking is None else self.thinking.budget_tokens
        if budget_tokens is not None and budget_tokens >= self.max_tokens:
            text = f"budget_tokens must be less than max_tokens, which is {self.max_tokens}"
            raise FieldConflictError("thinking.budget_tokens", text)
        return self

    @property
    def shows_thoughts(self) -> bool:
        """Whether the answer has their text."""
        return self.thinking is None or self.thinking.display != "omitted"

    def chat_fields(self) -> dict[str, Any]:
        """The conversation, and how its answer is drawn."""
        return (
            super().chat_fields()
            | {
                "max_tokens": self.max_tokens,
                "stop": self.stop_sequences,
                "stream": self.stream,
                "slo": self.slo,
                "cache_salt": self.cache_salt,
            }
            | {name: getattr(self, name) for name in ("temperature", "top_p", "top_k") if name in self.model_fields_set}
        )


class CountTokensRequest(Conversation):
    """``POST /v1/messages/count_tokens``."""


def _name_in(message: NamedMessage, field: str) -> str:
    """The client's own path of a field of a message."""
    begins = [begin for begin in message.names if field == begin or field.startswith((f"{begin}.", f"{begin}["))]
    if begins:
        longest = max(begins, key=len)
        return message.names[longest] + field.removeprefix(longest)
    return f"{message.own}.{field}" if field else message.own
