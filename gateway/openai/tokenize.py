"""What vLLM's ``/tokenize`` and ``/detokenize`` are asked and answer, with its names and defaults."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import Field, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError
from gateway.openai.requests.chat_messages import ChatMessage, check_turns
from gateway.openai.requests.schema import MAX_MESSAGES, TemplateSettings
from gateway.openai.requests.tools import MAX_TOOLS, Tool, check_tools

# As long as the contexts that most models have at most, and done within a second on a thread.
MAX_CHARACTERS = 1 << 19
MAX_TOKEN_IDS = 1 << 17


class TokenizeRequest(ApiObject):
    """``POST /tokenize``: a text, or a conversation as the model's template writes it."""

    model: str | None = None
    """May be left out where only one model is served."""
    prompt: Annotated[str, Field(max_length=MAX_CHARACTERS)] | None = None
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    """Whether the model's first token (BOS) is put before the text; by default before a prompt, and not before
    messages, whose template writes its own."""
    add_generation_prompt: bool = True
    """Whether the conversation ends with the opening of the assistant's turn; of messages only."""
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """Functions that the model is told of; of messages only."""
    chat_template_kwargs: TemplateSettings = Field(default_factory=dict)
    """As for chat; of messages only."""
    return_token_strs: bool = False
    """Whether the answer has the text of each token too."""

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise FieldConflictError("prompt", "give a prompt or messages, and not both")
        if self.prompt is not None and "add_generation_prompt" in self.model_fields_set:
            raise FieldConflictError("add_generation_prompt", "add_generation_prompt is for messages only")
        if self.prompt is not None and self.tools:
            raise FieldConflictError("tools", "tools are for messages only")
        if self.prompt is not None and self.chat_template_kwargs:
            raise FieldConflictError("chat_template_kwargs", "chat_template_kwargs are for messages only")
        check_tools(self.tools, None)
        check_turns(self.messages or ())
        return self


class DetokenizeRequest(ApiObject):
    """``POST /detokenize``."""

    model: str | None = None
    """As for `TokenizeRequest`."""
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_TOKEN_IDS)]


class TokenizeAnswer(Struct, frozen=True, kw_only=True):
    """Answer of ``/tokenize``."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    """Null unless asked for."""


class DetokenizeAnswer(Struct, frozen=True, kw_only=True):
    """Answer of ``/detokenize``."""

    prompt: str
