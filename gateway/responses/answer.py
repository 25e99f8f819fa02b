"""Answers of the Responses API. msgspec structs: a stream has an event for every token."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from gateway.openai.answers.answers import ChatTokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: list[Any] = []
    """Of OpenAI's own tools, which are not there."""
    logprobs: list[ChatTokenLogprob] | UnsetType = UNSET
    """Of its tokens; absent where they were not asked for."""


class ReasoningText(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class OutputMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the assistant says."""

    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class FunctionCallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call that the client is asked for."""

    id: str
    status: ItemStatus
    call_id: str
    """What the result of the call is sent with."""
    name: str
    arguments: str
    """A JSON object as the model wrote it, or its beginning where the answer ends within it."""


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """Thoughts, whole: there is no summary of them."""

    id: str
    status: ItemStatus
    summary: list[Any] = []
    content: list[ReasoningText]


OutputItem = OutputMessage | FunctionCallItem | ReasoningItem


class InputTokensDetails(Struct, frozen=True, kw_only=True):
    """Of the tokens that were sent."""

    cached_tokens: int


class OutputTokensDetails(Struct, frozen=True, kw_only=True):
    """Of the tokens that were made."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, kw_only=True):
    """Token counts of one request."""

    input_tokens: int
    input_tokens_details: InputTokensDetails | UnsetType = UNSET
    """Absent where the engine does not tell."""
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(Struct, frozen=True, kw_only=True):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ConversationName(Struct, frozen=True, kw_only=True):
    """A conversation, by its id."""

    id: str


class ResponseFailure(Struct, frozen=True, kw_only=True):
    """Why there is no answer, or no more of it."""

    code: str
    message: str


class ResponseAnswer(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/responses``: what came of a request, and what it asked for."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus
    background: bool = False
    conversation: ConversationName | UnsetType = UNSET
    """The one that it is part of; absent where it is of none."""
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None = None
    prompt_cache_key: str | None
    reasoning: dict[str, str | None]
    safety_identifier: str | None
    service_tier: Literal["default"] = "default"
    store: bool
    """Whether it is kept, so that another can go on from it."""
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_logprobs: int = 0
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    """Null until the answer is there."""
    user: str | None


class InputItemList(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/responses/{id}/input_items``, and of a conversation's ``/items``."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(Struct, frozen=True, kw_only=True):
    """Answer to its removal."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
