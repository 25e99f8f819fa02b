"""Requests of OpenAI's API as far as Treadle has them, with their ranges and defaults.

Rules, so that no answer differs from what was asked for without a word:
- a field of OpenAI's API that is not supported yet, or not at this endpoint, is refused by name, unless its value is
  the one that changes nothing (`INERT`);
- fields that do not go together are refused by the name of one of them;
- an unknown field is refused by name: it is a typing error, or belongs to another server;
- ``null`` means "not given", as OpenAI's clients use it;
- types are strict: ``"0.5"`` is no number, ``1.0`` no token limit;
- `user`, `metadata`, `store`, `prompt_cache_key` and `safety_identifier` are taken and not used: none of them changes
  the answer.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SkipValidation, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError, without_inert
from gateway.openai.requests.chat_messages import ChatMessage, check_turns
from gateway.openai.requests.effort import Effort
from gateway.openai.requests.prompts import TextOrTokens, listed_texts
from gateway.openai.requests.sampling import SamplingFields
from gateway.openai.requests.structured_output import ResponseFormat, StructuredOutputs
from gateway.openai.requests.tools import MAX_TOOLS, GivenToolChoice, Tool, check_tools
from shared.messages.requests.payload import Constraint
from shared.messages.requests.slo import MAX_START_S, MAX_TPOT_S, MIN_START_S, MIN_TPOT_S

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256
MAX_MESSAGES = 4096
MAX_PROMPTS = 64
MAX_TOP_LOGPROBS = 20
MAX_NAME_CHARACTERS = 256  # of a model or a class, which are told again where there is none of that name
MAX_METADATA = 16  # these three as OpenAI has them
MAX_METADATA_KEY_CHARACTERS = 64
MAX_METADATA_CHARACTERS = 512
MAX_ID_CHARACTERS = 512  # of what names a client's user
MAX_SALT_CHARACTERS = 512
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions

# Fields of OpenAI's API that are not supported, or not at this endpoint, with the values that ask for nothing.
INERT: dict[str, list[Any]] = {
    "audio": [],
    "echo": [False],
    "function_call": ["none"],
    "functions": [[]],
    "guided_choice": [],
    "guided_grammar": [],
    "guided_json": [],
    "guided_regex": [],
    "modalities": [["text"]],
    "parallel_tool_calls": [True, False],
    "prediction": [],
    "reasoning_effort": [],
    "service_tier": ["auto", "default"],
    "suffix": [""],
    "tool_choice": ["none"],
    "tools": [[]],
    "top_logprobs": [0],
    "verbosity": ["medium"],
    "web_search_options": [],
}

INSTEAD = dict.fromkeys(["guided_choice", "guided_grammar", "guided_json", "guided_regex"], "structured_outputs")
"""Older names of vLLM's, with the field that does it."""


class StreamOptions(ApiObject):
    """How a stream is sent."""

    include_usage: bool = False
    """A last chunk carries the token counts."""
    continuous_usage_stats: bool = False
    """With include_usage: every chunk carries the counts so far, as vLLM has it."""
    include_queue: bool = False
    """While the request waits, SSE comments tell its place in the queue
    (`gateway.openai.answers.queue_answers.PlaceComment`).

    Treadle's own; beside include_usage and no header, so that it is checked, documented, and refused without stream.
    """
    include_obfuscation: bool = False
    """Taken and not used: it pads chunks so that their sizes say nothing."""

    @model_validator(mode="after")
    def _counts_are_wanted(self) -> StreamOptions:
        if self.continuous_usage_stats and not self.include_usage:
            raise ValueError("continuous_usage_stats is only allowed with include_usage")
        return self


class SloNumbers(ApiObject):
    """A promise in seconds from arrival; any subset."""

    ttft_s: Annotated[float, Field(ge=MIN_START_S, le=MAX_START_S, allow_inf_nan=False)] | None = None
    tpot_s: Annotated[float, Field(ge=MIN_TPOT_S, le=MAX_TPOT_S, allow_inf_nan=False)] | None = None
    deadline_s: Annotated[float, Field(ge=MIN_START_S, le=MAX_START_S, allow_inf_nan=False)] | None = None


class SloChoice(SloNumbers):
    """`SloNumbers`, or the name of a class."""

    class_name: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)] | None = None

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


def _few(metadata: Any) -> Any:
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA:  # told before each of them is looked at
        raise ValueError(f"it has at most {MAX_METADATA} keys, not {len(metadata)}")
    return metadata


MetadataKey = Annotated[str, Field(max_length=MAX_METADATA_KEY_CHARACTERS)]
MetadataText = Annotated[str, Field(max_length=MAX_METADATA_CHARACTERS)]
SettingName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
TemplateSetting = bool | int | float | Annotated[str, Field(max_length=MAX_METADATA_CHARACTERS)]
Metadata = Annotated[dict[MetadataKey, MetadataText], Field(max_length=MAX_METADATA), BeforeValidator(_few)]
TemplateSettings = Annotated[dict[SettingName, TemplateSetting], Field(max_length=MAX_METADATA), BeforeValidator(_few)]
GivenSlo = Annotated[SloChoice, BeforeValidator(_slo_choice, json_schema_input_type=str | SloNumbers)]
Id = Annotated[str, Field(max_length=MAX_ID_CHARACTERS)]
CacheSalt = Annotated[str, Field(min_length=1, max_length=MAX_SALT_CHARACTERS)]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class GenerationRequest(SamplingFields):
    """What both endpoints have in common."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[
        list[StopString],
        Field(max_length=MAX_STOP_STRINGS),
        BeforeValidator(_one_or_more, json_schema_input_type=StopString | list[StopString]),
    ] = Field(default_factory=list)
    stream: bool = False
    stream_options: StreamOptions | None = None
    slo: GivenSlo | None = None
    """The promise asked for: a class's name, or numbers."""
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    """What is cached of this prompt is found by requests with the same salt alone."""
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    user: Id | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    prompt_cache_key: Id | None = None
    safety_identifier: Id | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        return without_inert(data, _unsupported(cls), INSTEAD) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _streams_and_stops(self) -> GenerationRequest:
        if self.stream_options is not None and not self.stream:
            raise FieldConflictError("stream_options", "stream_options is only allowed when stream is true")
        ranking = "use_beam_search" if self.use_beam_search else "best_of above n"
        if self.is_ranked and self.stream:
            raise FieldConflictError("stream", f"an answer with {ranking} is known at its end only: ask without stream")
        if self.is_ranked and self.stop:
            raise FieldConflictError("stop", f"stop strings cannot be combined with {ranking}")
        return self

    @model_validator(mode="after")
    def _constraint_goes_with_the_rest(self) -> GenerationRequest:
        if self.constraint is None:
            return self
        if self.structured_outputs is not None and self.response_format is not None and self.response_format.constraint:
            raise FieldConflictError("structured_outputs", "give response_format or structured_outputs, and not both")
        if self.use_beam_search:
            name = self.constraint_param
            raise FieldConflictError(name, f"{name} cannot be combined with use_beam_search")
        if self.ignore_eos:
            raise FieldConflictError("ignore_eos", f"an answer ends where {self.constraint_param} says, not later")
        return self

    @property
    def constraint(self) -> Constraint | None:
        """What the answer has to be; None for any text."""
        if self.structured_outputs is not None:
            return self.structured_outputs.constraint
        return None if self.response_format is None else self.response_format.constraint

    @property
    def constraint_param(self) -> str:
        """The field that says it."""
        return "response_format" if self.structured_outputs is None else "structured_outputs"

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def include_running_usage(self) -> bool:
        """Whether each chunk of a stream carries the token counts so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def include_queue(self) -> bool:
        """Whether a stream tells the place in the queue until its first token."""
        return self.stream_options is not None and self.stream_options.include_queue

    @property
    @abstractmethod
    def num_logprobs(self) -> int | None:
        """As `Sampling.num_logprobs`."""


class ChatCompletionRequest(GenerationRequest):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """OpenAI's newer name of max_tokens; if both are given, this one counts."""
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] = 0
    """The most likely tokens at each place, beside the one that was drawn."""
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = Field(default_factory=list)
    """Functions that the model may call."""
    tool_choice: GivenToolChoice | None = None
    """Whether it does: without it, ``auto`` where there are tools, else ``none``."""
    parallel_tool_calls: bool = True
    """Whether an answer may have several calls."""
    chat_template_kwargs: TemplateSettings = Field(default_factory=dict)
    """What the model's chat template lets clients set, such as ``{"enable_thinking": false}``."""
    reasoning_effort: Effort | None = None
    """How much the model thinks: ``none`` keeps it from it; others where its chat template lets clients say that."""

    @model_validator(mode="after")
    def _top_needs_logprobs(self) -> ChatCompletionRequest:
        if self.top_logprobs and not self.logprobs:
            raise FieldConflictError("top_logprobs", "top_logprobs is only allowed when logprobs is true")
        return self

    @model_validator(mode="after")
    def _turns_and_tools(self) -> ChatCompletionRequest:
        check_turns(self.messages)
        check_tools(self.tools, self.tool_choice)
        if not self.told_tools:
            return self
        if self.constraint is not None:
            text = f"{self.constraint_param} is only allowed with tools when tool_choice is 'none'"
            raise FieldConflictError(self.constraint_param, text)
        if self.is_call_forced and self.use_beam_search:
            raise FieldConflictError("tool_choice", "calls cannot be forced with use_beam_search")
        if self.is_call_forced and self.ignore_eos:
            raise FieldConflictError("ignore_eos", "an answer ends with the calls that tool_choice asks for, not later")
        return self

    @property
    def told_tools(self) -> list[Tool]:
        """The functions that the model is told of."""
        return [] if self.tool_choice is not None and self.tool_choice.type == "none" else self.tools

    @property
    def forced_tools(self) -> list[Tool]:
        """Those that it may call where it has to."""
        named = None if self.tool_choice is None else self.tool_choice.function
        return self.tools if named is None else [tool for tool in self.tools if tool.function.name == named.name]

    @property
    def is_call_forced(self) -> bool:
        """Whether the answer is calls and nothing else."""
        return self.tool_choice is not None and self.tool_choice.type in ("required", "function")

    @property
    def is_call_single(self) -> bool:
        """Whether there is one at most."""
        return not self.parallel_tool_calls or (self.tool_choice is not None and self.tool_choice.type == "function")

    @property
    def num_logprobs(self) -> int | None:
        """As `Sampling.num_logprobs`."""
        return self.top_logprobs if self.logprobs else None


class CompletionRequest(GenerationRequest):
    """``POST /v1/completions``."""

    prompt: Annotated[
        SkipValidation[list[str | list[int]]],  # the validator has looked at each token id, in steps: a list is long
        BeforeValidator(listed_texts("prompt", MAX_PROMPTS), json_schema_input_type=TextOrTokens),
    ]
    """Each gets ``n`` choices of its own."""
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    """The most likely tokens at each place, beside the one that was drawn."""
    echo: bool = False
    """The text begins with the prompt."""

    @model_validator(mode="after")
    def _no_logprobs_of_prompts(self) -> CompletionRequest:
        if self.echo and self.logprobs is not None:
            raise FieldConflictError("logprobs", "logprobs of a prompt are not supported: ask without logprobs or echo")
        return self

    @property
    def num_logprobs(self) -> int | None:
        """As `Sampling.num_logprobs`."""
        return self.logprobs


@cache
def _unsupported(kind: type[GenerationRequest]) -> dict[str, list[Any]]:
    """Fields of OpenAI's that this kind of request takes only where they ask for nothing."""
    return {name: values for name, values in INERT.items() if name not in kind.model_fields}
