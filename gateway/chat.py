"""``POST /v1/chat/completions``."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from gateway import admission, errors
from gateway.chat_template import ChatTemplate, ChatTemplateError
from gateway.models import ServedModel
from gateway.openai_responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    FinishReason,
    Message,
    Usage,
)
from gateway.openai_schema import ChatCompletionRequest, ChatMessage


class ChatEndpoint:
    """Messages in, the assistant's next turn out."""

    operation = "chat"
    prompt_param = "messages"
    body_model = ChatCompletionRequest

    async def prompt_token_ids(self, body: ChatCompletionRequest, model: ServedModel) -> list[int]:
        """The conversation in the model's own format; `ApiError` 400 when the model's template refuses it."""
        template = model.template
        if template is None:
            raise errors.invalid(f"the model {model.name!r} has no chat template", "model", code="no_chat_template")
        num_characters = sum(len(message.content) for message in body.messages)
        return await admission.tokenise(lambda: _encode(body.messages, model, template), num_characters)

    def room(self, body: ChatCompletionRequest) -> admission.Room:
        """As OpenAI: without a limit, what fits into the context."""
        if body.max_completion_tokens is not None:
            return admission.Room(body.max_completion_tokens, None, "max_completion_tokens")
        return admission.Room(body.max_tokens, None, "max_tokens")

    def renderer(self, body: ChatCompletionRequest, request_id: str, created: int) -> ChatRenderer:
        """Chat chunks, or one chat completion."""
        return ChatRenderer(f"chatcmpl-{request_id}", created, body.model, include_usage=body.include_usage)


def _encode(messages: list[ChatMessage], model: ServedModel, template: ChatTemplate) -> list[int]:
    tokenizer = model.tokenizer
    turns = []
    for message in messages:
        # OpenAI renamed its system role for newer models; templates of open models know the old name only
        role = "system" if message.role == "developer" else message.role
        turn = {"role": role, "content": tokenizer.user_text(message.content)}
        if message.name is not None:
            turn["name"] = tokenizer.user_text(message.name)
        turns.append(turn)
    try:
        return tokenizer.encode_chat(template.render(turns))
    except ChatTemplateError as error:
        raise errors.invalid(
            f"the chat template of {model.name!r} refuses these messages: {error}", "messages", code="chat_template"
        ) from error


class ChatRenderer:
    """Writes one answer; all its chunks share id, time and model."""

    def __init__(self, completion_id: str, created: int, model: str, *, include_usage: bool) -> None:
        self._id = completion_id
        self._created = created
        self._model = model
        self._no_usage: UnsetType | None = None if include_usage else UNSET

    def opening(self) -> list[Struct]:
        """Whose turn it is."""
        return [self._chunk(ChatDelta(role="assistant", content=""))]

    def piece(self, text: str) -> Struct:
        """Some text."""
        return self._chunk(ChatDelta(content=text))

    def closing(self, text: str, finish_reason: FinishReason) -> list[Struct]:
        """The last text, then an empty delta with the reason."""
        last = self._chunk(ChatDelta(), finish_reason)
        return [self.piece(text), last] if text else [last]

    def counts(self, usage: Usage) -> Struct:
        """A chunk without choices."""
        return ChatCompletionChunk(id=self._id, created=self._created, model=self._model, choices=[], usage=usage)

    def whole(self, text: str, finish_reason: FinishReason, usage: Usage) -> Struct:
        """The whole turn."""
        choice = ChatChoice(message=Message(content=text), finish_reason=finish_reason)
        return ChatCompletion(id=self._id, created=self._created, model=self._model, choices=[choice], usage=usage)

    def _chunk(self, delta: ChatDelta, finish_reason: FinishReason | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=[ChatChunkChoice(delta=delta, finish_reason=finish_reason)],
            usage=self._no_usage,
        )
