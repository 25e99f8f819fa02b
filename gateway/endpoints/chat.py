"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from gateway.answers.event import SseEvent
from gateway.answers.spliced import MARK, SplicedText
from gateway.endpoints import job_parts
from gateway.generation.logprobs import LogprobWriter
from gateway.models.chat_template import ChatTemplateError
from gateway.models.models import ServedModel
from gateway.openai import errors
from gateway.openai.delta import Delta
from gateway.openai.responses import (
    AnswerMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    ChatLogprobs,
    FinishReason,
    Usage,
)
from gateway.openai.schema import ChatCompletionRequest, ChatMessage

CHARACTERS_PER_MESSAGE = 64  # a turn of a template takes as long as a text of this length, even if it is empty


class ChatEndpoint:
    """Messages in, the assistant's next turn out."""

    operation = "chat"
    prompt_param = "messages"
    body_model = ChatCompletionRequest

    async def prompts(self, body: ChatCompletionRequest, model: ServedModel) -> list[list[int]]:
        """The conversation in the model's own format; `ApiError` 400 when the model's template refuses it."""
        num_characters = sum(len(message.content) for message in body.messages)
        job_parts.check_characters(model, num_characters, "messages")
        num_characters += CHARACTERS_PER_MESSAGE * len(body.messages)
        return await job_parts.tokenise(lambda: [encode_messages(body.messages, model)], num_characters)

    def room(self, body: ChatCompletionRequest) -> job_parts.Room:
        """As OpenAI: without a limit, what fits into the context."""
        if body.max_completion_tokens is not None:
            return job_parts.Room(body.max_completion_tokens, None, "max_completion_tokens")
        return job_parts.Room(body.max_tokens, None, "max_tokens")

    def renderer(self, body: ChatCompletionRequest, model: ServedModel, request_id: str, created: int) -> ChatRenderer:
        """Chat chunks, or one chat completion."""
        logprobs = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0) if body.logprobs else None
        return ChatRenderer(
            f"chatcmpl-{request_id}",
            created,
            body.model,
            body.n,
            logprobs,
            include_usage=body.include_usage,
            is_counted=body.include_running_usage,
        )


def encode_messages(messages: list[ChatMessage], model: ServedModel, *, is_open: bool = True) -> list[int]:
    """The conversation's tokens, by default up to the assistant's next turn; `ApiError` 400 without a template."""
    template, tokenizer = model.template, model.tokenizer
    if template is None:
        raise errors.invalid(f"the model {model.name!r} has no chat template", "model", code="no_chat_template")
    turns = []
    for message in messages:
        # OpenAI renamed its system role for newer models; templates of open models know the old name only
        role = "system" if message.role == "developer" else message.role
        turn = {"role": role, "content": tokenizer.user_text(message.content)}
        if message.name is not None:
            turn["name"] = tokenizer.user_text(message.name)
        turns.append(turn)
    try:
        return tokenizer.encode_chat(template.render(turns, is_open=is_open))
    except ChatTemplateError as error:
        raise errors.invalid(
            f"the chat template of {model.name!r} refuses these messages: {error}", "messages", code="chat_template"
        ) from error


class ChatRenderer:
    """Writes one answer; all its chunks share id, time and model."""

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        num_choices: int,
        logprobs: LogprobWriter | None,
        *,
        include_usage: bool,
        is_counted: bool = False,
    ) -> None:
        """``is_counted``: each chunk gets counts when it is sent (`running_usage`), so none is written ahead."""
        self._id = completion_id
        self._created = created
        self._model = model
        self._num_choices = num_choices
        self._logprobs = logprobs
        self._no_usage: UnsetType | None = None if include_usage else UNSET
        self._is_counted = is_counted
        self._texts: list[SplicedText] = []  # by choice, of an answer that is streamed

    def opening(self) -> list[SseEvent]:
        """Whose turn it is."""
        choices = range(self._num_choices)
        self._texts = [SplicedText(self._chunk(choice, ChatDelta(content=MARK))) for choice in choices]
        return [self._chunk(choice, ChatDelta(role="assistant", content="")) for choice in choices]

    def events(self, delta: Delta) -> list[SseEvent]:
        """New text, then an empty delta with the reason why it ended."""
        events: list[SseEvent] = []
        if delta.text and self._logprobs is None and not self._is_counted:
            events.append(self._texts[delta.choice].around(delta.text))
        elif delta.text or delta.scored:
            events.append(self._chunk(delta.choice, ChatDelta(content=delta.text), logprobs=self._scores(delta)))
        if delta.finish_reason is not None:
            events.append(self._chunk(delta.choice, ChatDelta(), delta.finish_reason))
        return events

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
        assert choice.finish_reason is not None, "it is whole"
        return ChatChoice(
            index=choice.choice,
            message=AnswerMessage(content=choice.text),
            logprobs=self._scores(choice),
            finish_reason=choice.finish_reason,
        )

    def _scores(self, delta: Delta) -> ChatLogprobs | None:
        return None if self._logprobs is None else self._logprobs.chat(delta.scored)

    def _chunk(
        self,
        choice: int,
        delta: ChatDelta,
        finish_reason: FinishReason | None = None,
        logprobs: ChatLogprobs | None = None,
    ) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[ChatChunkChoice(index=choice, delta=delta, finish_reason=finish_reason, logprobs=logprobs)],
            usage=self._no_usage,
        )
