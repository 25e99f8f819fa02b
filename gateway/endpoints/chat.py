"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import UNSET, Struct, UnsetType

from gateway.answers.event import SseEvent
from gateway.answers.spliced import MARK, SplicedText
from gateway.endpoints import job_parts
from gateway.endpoints.constraint_check import checked_constraint
from gateway.endpoints.forced_tools import forced_constraint
from gateway.endpoints.tool_answers import CallReading, ChoiceCalls
from gateway.endpoints.tool_turns import told_tools, turns
from gateway.generation.logprobs import LogprobWriter
from gateway.models.chat_template import ChatTemplateError
from gateway.models.models import ServedModel
from gateway.openai import errors
from gateway.openai.chat_messages import ChatMessage
from gateway.openai.delta import Delta
from gateway.openai.responses import (
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
from gateway.openai.schema import ChatCompletionRequest
from gateway.openai.tools import Tool, num_told_characters
from gateway.tools.hermes_prompt import with_hermes
from shared.messages.payload import Constraint

CHARACTERS_PER_MESSAGE = 64  # a turn of a template takes as long as a text of this length, even if it is empty


class ChatEndpoint:
    """Messages in, the assistant's next turn out."""

    operation = "chat"
    prompt_param = "messages"
    body_model = ChatCompletionRequest

    async def constraint(self, body: ChatCompletionRequest, model: ServedModel) -> Constraint | None:
        """Calls and nothing else where ``tool_choice`` asks for them, else as the request says."""
        return await forced_constraint(body, model) if body.is_call_forced else await checked_constraint(body)

    async def prompts(self, body: ChatCompletionRequest, model: ServedModel) -> list[list[int]]:
        """The conversation in the model's own format; `ApiError` 400 when the model's template refuses it."""
        num_characters = sum(message.num_characters for message in body.messages)
        job_parts.check_characters(model, num_characters, "messages")
        num_characters += CHARACTERS_PER_MESSAGE * len(body.messages) + sum(map(num_told_characters, body.told_tools))
        return await job_parts.tokenise(
            lambda: [encode_messages(body.messages, model, body.told_tools)], num_characters
        )

    def token_bytes(self, body: ChatCompletionRequest, model: ServedModel) -> Sequence[bytes]:
        """Marks of calls are seen where there may be calls."""
        return model.shown_token_bytes if body.told_tools else model.tokenizer.token_bytes

    def room(self, body: ChatCompletionRequest) -> job_parts.Room:
        """As OpenAI: without a limit, what fits into the context."""
        if body.max_completion_tokens is not None:
            return job_parts.Room(body.max_completion_tokens, None, "max_completion_tokens")
        return job_parts.Room(body.max_tokens, None, "max_tokens")

    def renderer(self, body: ChatCompletionRequest, model: ServedModel, request_id: str, created: int) -> ChatRenderer:
        """Chat chunks, or one chat completion."""
        logprobs = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0) if body.logprobs else None
        names = frozenset(tool.function.name for tool in body.told_tools)
        reading = CallReading(model.notation, names, body.is_call_single) if names else None
        return ChatRenderer(
            request_id,
            created,
            body.model,
            body.n,
            logprobs,
            reading,
            include_usage=body.include_usage,
            is_counted=body.include_running_usage,
        )


def encode_messages(
    messages: Sequence[ChatMessage], model: ServedModel, tools: Sequence[Tool] = (), *, is_open: bool = True
) -> list[int]:
    """The conversation's tokens, by default up to the assistant's next turn; `ApiError` 400 without a template."""
    template, tokenizer = model.template, model.tokenizer
    if template is None:
        raise errors.invalid(f"the model {model.name!r} has no chat template", "model", code="no_chat_template")
    if model.tool_template is not None and (tools or any(one.role == "tool" or one.tool_calls for one in messages)):
        template = model.tool_template
    spoken, told = turns(messages, tokenizer), told_tools(tools, tokenizer)
    try:
        if template.takes_tools:
            rendered = template.render(spoken, tools=told or None, is_open=is_open)
        else:
            rendered = template.render(with_hermes(spoken, told), is_open=is_open)
        return tokenizer.encode_chat(rendered)
    except ChatTemplateError as error:
        raise errors.invalid(
            f"the chat template of {model.name!r} refuses these messages: {error}", "messages", code="chat_template"
        ) from error


class ChatRenderer:
    """Writes one answer; all its chunks share id, time and model."""

    def __init__(
        self,
        request_id: str,
        created: int,
        model: str,
        num_choices: int,
        logprobs: LogprobWriter | None,
        reading: CallReading | None = None,
        *,
        include_usage: bool,
        is_counted: bool = False,
    ) -> None:
        """``is_counted``: each chunk gets counts when it is sent (`running_usage`), so none is written ahead.

        ``reading``: how calls are found; None where there are no functions.
        """
        self._id = f"chatcmpl-{request_id}"
        self._created = created
        self._model = model
        self._num_choices = num_choices
        self._logprobs = logprobs
        self._no_usage: UnsetType | None = None if include_usage else UNSET
        self._is_counted = is_counted
        self._texts: list[SplicedText] = []  # by choice, of an answer that is streamed
        numbers = range(num_choices) if reading is not None else ()
        self._calls = [ChoiceCalls(reading, request_id, choice) for choice in numbers if reading is not None]

    def opening(self) -> list[SseEvent]:
        """Whose turn it is."""
        choices = range(self._num_choices)
        self._texts = [SplicedText(self._chunk(choice, ChatDelta(content=MARK))) for choice in choices]
        return [self._chunk(choice, ChatDelta(role="assistant", content="")) for choice in choices]

    def events(self, delta: Delta) -> list[SseEvent]:
        """New text, then an empty delta with the reason why it ended."""
        if self._calls:
            return self._call_events(delta)
        events: list[SseEvent] = []
        if delta.text and self._logprobs is None and not self._is_counted:
            events.append(self._texts[delta.choice].around(delta.text))
        elif delta.text or delta.scored:
            events.append(self._chunk(delta.choice, ChatDelta(content=delta.text), logprobs=self._scores(delta)))
        if delta.finish_reason is not None:
            events.append(self._chunk(delta.choice, ChatDelta(), delta.finish_reason))
        return events

    def _call_events(self, delta: Delta) -> list[SseEvent]:
        """The same where the text may have calls; logprobs go out with the first of its chunks."""
        calls = self._calls[delta.choice]
        added = calls.deltas(delta)
        if delta.scored and not added:
            added = [ChatDelta(content="")]
        scores = [self._scores(delta), *[None] * len(added)]
        events = [self._chunk(delta.choice, one, logprobs=score) for one, score in zip(added, scores, strict=False)]
        if delta.finish_reason is not None:
            events.append(self._chunk(delta.choice, ChatDelta(), calls.reason(delta)))
        return list(events)

    def counts(self, usage: Usage) -> Struct:
        """A chunk without choices."""
        return ChatCompletionChunk(id=self._id, created=self._created, model=self._model, choices=[], usage=usage)

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
        if self._calls:
            calls = self._calls[choice.choice]
            message, reason = calls.whole(choice), calls.reason(choice)
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
