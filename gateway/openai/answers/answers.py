"""Answers of OpenAI's API. msgspec structs, since one is encoded for every token of every stream."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from shared.config.engines.engine import ModelTask

FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Struct, frozen=True):
    """Of a request's prompts."""

    cached_tokens: int
    """Tokens whose keys and values lay in a cache when the request began, and were not computed for it."""


class CompletionTokensDetails(Struct, frozen=True):
    """Of an answer, all choices together."""

    reasoning_tokens: int
    """Tokens of thoughts, with the marks around them."""


class Usage(Struct, frozen=True):
    """Token counts of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    """Absent while it is not known of every prompt, and where an engine does not tell."""
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    """Absent where thoughts are not told apart."""


class CalledFunction(Struct, frozen=True, kw_only=True):
    """What is called."""

    name: str
    arguments: str
    """A JSON object as the model wrote it, or its beginning where the answer ends within it."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that the client is asked for."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """The assistant's turn."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    """Null where there are calls, or thoughts, and nothing else."""
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET
    """Absent where there are none."""
    reasoning_content: str | UnsetType = UNSET
    """What the model thought before it answered; absent where it did not."""


class TopLogprob(Struct, frozen=True, kw_only=True):
    """One of the most likely tokens at a place."""

    token: str
    logprob: float
    bytes: list[int] | None
    """Of the token's text; null where it has none. A character may take the bytes of several tokens."""


class ChatTokenLogprob(TopLogprob, frozen=True, kw_only=True):
    """A drawn token, and the most likely ones at its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True, kw_only=True):
    """Logprobs of a message's tokens, or of those that a chunk adds."""

    content: list[ChatTokenLogprob]
    refusal: None = None


class CompletionLogprobs(Struct, frozen=True, kw_only=True):
    """Logprobs of a text's tokens, or of those that a chunk adds; lists of the same length."""

    text_offset: list[int]
    """Characters of the choice's text before each token."""
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]] | None
    """The most likely tokens at each place and the drawn one; null where only the drawn ones were asked for."""


class ChatChoice(Struct, frozen=True, kw_only=True):
    """A continuation."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/chat/completions``."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(Struct, frozen=True, kw_only=True):
    """What a chunk adds to what is called."""

    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Struct, frozen=True, kw_only=True):
    """What a chunk adds to a call; its first one names it."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class ChatDelta(Struct, frozen=True, kw_only=True):
    """What a chunk adds."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET


class ChatChunkChoice(Struct, frozen=True, kw_only=True):
    """What a chunk adds to a continuation."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatFinishReason | None = None


class ChatCompletionChunk(Struct, frozen=True, kw_only=True):
    """One event of a chat stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    """Null in all chunks but the last when the client asked for it, else absent."""


class CompletionChoice(Struct, frozen=True, kw_only=True):
    """A continuation, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class Completion(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/completions``, and one event of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class ModelCard(Struct, frozen=True, kw_only=True):
    """A served model, or an adapter of one."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["treadle"] = "treadle"
    root: str
    """The same name again, of an alias the model's: where its files lie is not told outside."""
    parent: str | None = None
    """The model that it is an adapter of; null where it is none."""
    max_model_len: int
    task: ModelTask = "generate"
    """What it is served for: ``generate``, ``embed`` or ``score``."""
    sampling: dict[str, float]
    """How its tokens are drawn where a request does not say, where that is not as OpenAI's API has it."""


class ModelList(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/models``."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Version(Struct, frozen=True, kw_only=True):
    """Answer of ``/version``."""

    version: str


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong, for people (message) and programs (code, param)."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Struct, frozen=True, kw_only=True):
    """Answer to everything that failed."""

    error: ErrorDetail
