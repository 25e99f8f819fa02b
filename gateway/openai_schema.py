"""Requests of OpenAI's API as far as Treadle has them, with their ranges and defaults.

Rules, so that no answer differs from what was asked for without a word:
- a field of OpenAI's API that is not supported yet is refused by name, unless its value is the one that changes
  nothing (`INERT`);
- a field that nobody knows is refused by name: it is a typing error, or belongs to another server;
- ``null`` means "not given", as OpenAI's clients use it;
- types are strict: ``"0.5"`` is no number, ``1.0`` no token limit;
- `user`, `metadata`, `store`, `parallel_tool_calls`, `prompt_cache_key` and `safety_identifier` are taken and not
  used: none of them changes the answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256
MAX_MESSAGES = 4096
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions

# Fields of OpenAI's API (and of vLLM's extension of it) that are not supported, with the values that ask for nothing.
INERT: dict[str, list[Any]] = {
    "audio": [],
    "best_of": [1],
    "echo": [False],
    "frequency_penalty": [0],
    "function_call": ["none"],
    "functions": [[]],
    "guided_json": [],
    "logit_bias": [{}],
    "logprobs": [False],
    "modalities": [["text"]],
    "n": [1],
    "prediction": [],
    "presence_penalty": [0],
    "reasoning_effort": [],
    "repetition_penalty": [1],
    "response_format": [{"type": "text"}],
    "service_tier": ["auto", "default"],
    "suffix": [""],
    "tool_choice": ["none"],
    "tools": [[]],
    "top_logprobs": [0],
    "use_beam_search": [False],
    "verbosity": [],
    "web_search_options": [],
}


class UnsupportedFieldError(Exception):
    """A field of `INERT` with a value that asks for something. No ValueError: pydantic would swallow it."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def _drop_nulls(data: Any) -> Any:
    return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class _Part(BaseModel):
    """An object in a request."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    _without_nulls = model_validator(mode="before")(_drop_nulls)


class TextPart(_Part):
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


def _joined(content: Any) -> Any:
    """Text parts as one string; every other shape is left for the field's own type to refuse."""
    if not isinstance(content, list):
        return content
    texts = []
    for number, part in enumerate(content):
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ValueError(f"part {number} is no text part; only {{'type': 'text', 'text': …}} is supported")
        texts.append(part["text"])
    return "".join(texts)


Content = Annotated[str, BeforeValidator(_joined, json_schema_input_type=str | list[TextPart])]


class ChatMessage(_Part):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    name: Annotated[str, Field(max_length=256)] | None = None


class StreamOptions(_Part):
    """How a stream is sent."""

    include_usage: bool = False
    """A last chunk carries the token counts."""
    include_obfuscation: bool = False
    """Taken and not used: it pads chunks so that their sizes say nothing."""


class SloNumbers(_Part):
    """A promise in seconds from arrival; any subset."""

    ttft_s: Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)] | None = None
    tpot_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)] | None = None


class SloChoice(SloNumbers):
    """`SloNumbers`, or the name of a class."""

    class_name: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> SloChoice:
        given = self.model_fields_set
        if not given or ("class_name" in given and len(given) > 1):
            raise ValueError("give the name of a class, or at least one of ttft_s, tpot_s, deadline_s")
        return self


def _slo_choice(value: Any) -> Any:
    if isinstance(value, dict) and "class_name" in value:
        raise ValueError("a class is named by a string, not by an object")
    return {"class_name": value} if isinstance(value, str) else value


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _single_prompt(value: Any) -> Any:
    """``"text"``, ``["text"]``, ``[1, 2]`` and ``[[1, 2]]`` are one prompt; a list of several is refused."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise ValueError("more than one prompt in a request is not supported yet")
        value = value[0]
    # checked here and not by the union, whose errors would name its branches and not the field
    if not (isinstance(value, str) or (isinstance(value, list) and all(type(item) is int for item in value))):
        raise ValueError("a prompt is a string or a list of token ids")
    return value


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class GenerationRequest(_Part):
    """What both endpoints have in common."""

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int, Field(ge=-1, le=1 << 20)] = 0
    """Keep the k most likely tokens; 0 and −1 keep all."""
    min_p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    """Equal seeds draw equal tokens; without one, a random one is taken."""
    stop: Annotated[
        list[StopString],
        Field(max_length=MAX_STOP_STRINGS),
        BeforeValidator(_one_or_more, json_schema_input_type=StopString | list[StopString]),
    ] = []
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    """Go on to max_tokens, whatever the model says; for benchmarks."""
    slo: Annotated[SloChoice, BeforeValidator(_slo_choice, json_schema_input_type=str | SloNumbers)] | None = None
    """The promise asked for: a class's name, or numbers."""
    user: str | None = None
    metadata: dict[str, JsonValue] | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name in data.keys() & INERT.keys():
            if data[name] is not None and not _is_inert(name, data[name]):
                raise UnsupportedFieldError(name)
        return {name: value for name, value in data.items() if name not in INERT}

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> GenerationRequest:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed when stream is true")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatCompletionRequest(GenerationRequest):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """OpenAI's newer name of max_tokens; if both are given, this one counts."""


class CompletionRequest(GenerationRequest):
    """``POST /v1/completions``."""

    prompt: Annotated[
        str | list[int],
        BeforeValidator(_single_prompt, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
    ]


def _is_inert(name: str, value: Any) -> bool:
    # bool and number apart: ``logprobs: 0`` asks for the chosen token's probability, ``logprobs: false`` for nothing
    return any(value == inert and isinstance(value, bool) == isinstance(inert, bool) for inert in INERT[name])
