"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import UNSET, Struct, UnsetType

from gateway.answers.event import DONE, SseEvent
from gateway.answers.settled import Settled
from gateway.answers.spliced import MARK, SplicedText
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.constraint_check import checked_constraint
from gateway.endpoints.call.pictures import read_pictures
from gateway.endpoints.call.self_contained import SelfContained
from gateway.endpoints.chats.chat_prompt import encode_messages
from gateway.endpoints.chats.choice_reading import ChoiceReading
from gateway.endpoints.chats.forced_tools import forced_constraint
from gateway.endpoints.chats.thinking import thought_reading, with_effort, with_lead
from gateway.endpoints.chats.tool_answers import CallReading
from gateway.generation.logprobs import LogprobWriter
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import (
    AnswerMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatFinishReason,
    ChatLogprobs,
    Usage,
)
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import ChatCompletionRequest
from gateway.openai.requests.tools import num_told_characters
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.messages.requests.payload import Constraint
from shared.messages.requests.pictures import Picture

CHARACTERS_PER_MESSAGE = 64  # a turn of a template takes as long as a text of this length, even if it is empty


class ChatEndpoint(SelfContained):
    """Messages in, the assistant's next turn out."""

    operation = "chat"
    prompt_param = "messages"
    body_model = ChatCompletionRequest
    task: ModelTask = "generate"

    def asked(self, body: ChatCompletionRequest) -> ChatCompletionRequest:
        """The body itself."""
        return body

    async def constraint(
        self,
        body: ChatCompletionRequest,
        model: ServedModel,
        threads: TenantThreads,
    ) -> Constraint | None:
        """Calls where ``tool_choice`` asks for them, else as the request says; thoughts may stand before either."""
        if body.is_call_forced:
            return with_lead(await forced_constraint(body, model, threads), body, model)
        return with_lead(await checked_constraint(body, threads), body, model)

    async def prompts(self, body: ChatCompletionRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The conversation in the model's own format; `ApiError` 400 when the model's template refuses it."""
        body = with_effort(body, model)
        num_characters = sum(message.num_characters for message in body.messages)
        job_parts.check_characters(model, num_characters, "messages")
        num_characters += CHARACTERS_PER_MESSAGE * len(body.messages) + sum(map(num_told_characters, body.told_tools))
        return await job_parts.tokenise(
            lambda: [encode_messages(body.messages, model, body.told_tools, settings=body.chat_template_kwargs)],
            num_characters,
            threads,
        )

    async def pictures(
        self,
        body: ChatCompletionRequest,
        model: ServedModel,
        able: list[str],
        threads: TenantThreads,
    ) -> list[Picture]:
        """Those of its messages."""
        return await read_pictures(body.messages, model, able, threads)

    def token_bytes(self, body: ChatCompletionRequest, model: ServedModel) -> Sequence[bytes]:
        """Marks of calls are seen where there may be calls, those of thoughts where these are told apart."""
        return model.shown_token_bytes(calls=bool(body.told_tools), thoughts=True)

    def thoughts(self, body: ChatCompletionRequest, model: ServedModel) -> ThoughtReading | None:
        """Of a model that marks them, where an answer may begin with them."""
        return thought_reading(body, model)

    def room(self, body: ChatCompletionRequest) -> job_parts.Room:
        """As OpenAI: without a limit, what fits into the context."""
        if body.max_completion_tokens is not None:
            return job_parts.Room(body.max_completion_tokens, None, "max_completion_tokens")
        return job_parts.Room(body.max_tokens, None, "max_tokens")

    def renderer(self, body: ChatCompletionRequest, model: ServedModel, request_id: str, created: int) -> ChatRenderer:
        """Chat chunks, or one chat completion."""
        logprobs = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0) if body.logprobs else None
        readings = choice_readings(body, model, request_id)
        return ChatRenderer(
            request_id,
            created,
            body.model,
            body.n,
            logprobs,
            [] if readings[0].is_plain else readings,
            include_usage=body.include_usage,
            is_counted=body.include_running_usage,
        )


def choice_readings(body: ChatCompletionRequest, model: ServedModel, request_id: str) -> list[ChoiceReading]:
    """What is found in an answer beside text, choice by choice; new ones for each, since it is read as it comes."""
    functions = {tool.function.name: tool.function.parameters for tool in body.told_tools}
    num_earlier = sum(len(message.tool_calls or ()) for message in body.messages)
    calls = CallReading(model.notation, functions, body.is_call_single, num_earlier) if functions else None
    thoughts = thought_reading(body, model)
    return [ChoiceReading(thoughts, calls, request_id, choice) for choice in range(body.n)]


class ChatRenderer(Settled):
    """Writes one answer; all its chunks share id, time and model."""

    def __init__(
        self,
        request_id: str,
        created: int,
        model: str,
        num_choices: int,
        logprobs: LogprobWriter | None,
        readings: Sequence[ChoiceReading] = (),
        *,
        include_usage: bool,
        is_counted: bool = False,
    ) -> None:
        """``is_counted``: each chunk gets counts when it is sent (`running_usage`), so none is written ahead.

        ``readings``: of each choice, where there is more to be found than text.
        """
        self._id = f"chatcmpl-{request_id}"
        self._created = created
        self._model = model
        self._num_choices = num_choices
        self._logprobs = logprobs
        self._no_usage: UnsetType | None = None if include_usage else UNSET
        self._is_counted = is_counted
        self._texts: list[SplicedText] = []  # by choice, of an answer that is streamed
        self._readings = readings

    def opening(self, usage: Usage) -> list[SseEvent]:  # noqa: ARG002
        """The role of the turn."""
        choices = range(self._num_choices)
        self._texts = [SplicedText(self._chunk(choice, ChatDelta(content=MARK))) for choice in choices]
        return [self._chunk(choice, ChatDelta(role="assistant", content="")) for choice in choices]

    def events(self, delta: Delta) -> list[SseEvent]:
        """New text, then an empty delta with the reason why it ended."""
        if self._readings:
            return self._read_events(delta)
        events: list[SseEvent] = []
        if delta.text and self._is_spliced:
            events.append(self._texts[delta.choice].around(delta.text))
        elif delta.text or delta.scored:
            events.append(self._chunk(delta.choice, ChatDelta(content=delta.text), logprobs=self._scores(delta)))
        if delta.finish_reason is not None:
            events.append(self._chunk(delta.choice, ChatDelta(), delta.finish_reason))
        return events

    @property
    def _is_spliced(self) -> bool:
        """Chunks of text differ in nothing else."""
        return self._logprobs is None and not self._is_counted

    def _read_events(self, delta: Delta) -> list[SseEvent]:
        """The same where the text may be more than text; logprobs go out with the first of its chunks."""
        reading = self._readings[delta.choice]
        if self._is_spliced and delta.finish_reason is None and reading.passes(delta.text):
            return [self._texts[delta.choice].around(delta.text)]
        added = reading.deltas(delta)
        if delta.scored and not added:
            added = [ChatDelta(content="")]
        scores = [self._scores(delta), *[None] * len(added)]
        events = [self._event(delta.choice, one, score) for one, score in zip(added, scores, strict=False)]
        if delta.finish_reason is not None:
            events.append(self._chunk(delta.choice, ChatDelta(), reading.reason(delta)))
        return events

    def _event(self, choice: int, delta: ChatDelta, score: ChatLogprobs | None) -> SseEvent:
        if self._is_spliced and isinstance(delta.content, str) and delta.content:
            return self._texts[choice].around(delta.content)
        return self._chunk(choice, delta, logprobs=score)

    def closing(self, usage: Usage) -> list[SseEvent]:
        """A chunk without choices where counts are wanted."""
        if self._no_usage is UNSET:
            return [DONE]
        counts = ChatCompletionChunk(id=self._id, created=self._created, model=self._model, choices=[], usage=usage)
        return [counts, DONE]

    def failed(self, error: ApiError) -> list[SseEvent]:
        """An error in a chunk's place."""
        return [error.body()]

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """The whole turn, in all its versions."""
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[self._choice(choice) for choice in choices],
            usage=usage,
        )

    def _choice(self, choice: Delta) -> ChatChoice:
        message, reason = AnswerMessage(content=choice.text), cast("ChatFinishReason | None", choice.finish_reason)
        if self._readings:
            reading = self._readings[choice.choice]
            message, reason = reading.whole(choice), reading.reason(choice)
        assert reason is not None, "it is whole"
        return ChatChoice(
            index=choice.choice,
            message=message,
            logprobs=self._scores(choice),
            finish_reason=reason,
        )

    def _scores(self, delta: Delta) -> ChatLogprobs | None:
        return None if self._logprobs is None else self._logprobs.chat(delta.scored)

    def _chunk(
        self,
        choice: int,
        delta: ChatDelta,
        finish_reason: ChatFinishReason | None = None,
        logprobs: ChatLogprobs | None = None,
    ) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[ChatChunkChoice(index=choice, delta=delta, finish_reason=finish_reason, logprobs=logprobs)],
            usage=self._no_usage,
        )
