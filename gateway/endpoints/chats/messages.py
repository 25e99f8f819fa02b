"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``, as Anthropic has them."""

from __future__ import annotations

from aiohttp import web

from gateway.anthropic.answers import TokenCount
from gateway.anthropic.renderer import MessageRenderer
from gateway.anthropic.requests import Conversation, CountTokensRequest, MessagesRequest
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.self_contained import SelfContained
from gateway.endpoints.chats.chat import choice_readings
from gateway.endpoints.chats.chat_prompt import encode_messages
from gateway.endpoints.chats.thinking import with_thinking
from gateway.endpoints.chats.tokenization import num_characters_of, worked_out
from gateway.endpoints.chats.translated import TranslatedEndpoint
from gateway.http.body import BODY_BYTES, announced_bytes, read_body
from gateway.http.context import CLIENT, CONTEXT, SLOTS
from gateway.models.models import ServedModel
from gateway.openai.requests.schema import ChatCompletionRequest


class MessagesEndpoint(SelfContained, TranslatedEndpoint[MessagesRequest]):
    """Turns in, the assistant's next turn out."""

    operation = "chat"
    prompt_param = "messages"
    body_model = MessagesRequest

    def chat_for(self, body: MessagesRequest, model: ServedModel) -> ChatCompletionRequest:
        """Whether the model thinks is its template's to say."""
        return _thinking(body, model)

    def room(self, body: MessagesRequest) -> job_parts.Room:
        """As much as the client says: there is no default."""
        return job_parts.Room(body.max_tokens, None, "max_tokens")

    def renderer(
        self,
        body: MessagesRequest,
        model: ServedModel,
        request_id: str,
        created: int,  # noqa: ARG002 (a message has no time)
    ) -> MessageRenderer:
        """A message, or its events."""
        (reading,) = choice_readings(self.chat_for(body, model), model, request_id)
        return MessageRenderer(request_id, body.model, reading, shows_thoughts=body.shows_thoughts)


async def count_tokens(http: web.Request) -> web.Response:
    """The tokens of a conversation, with the tools that the model is told of; it holds a slot meanwhile."""
    with http.app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)) as held:
        body = await read_body(http, CountTokensRequest)
        held.shrink(http[BODY_BYTES])
        model = job_parts.find_model(http.app[CONTEXT], body.model)
        with body.in_own_words():
            chat = _thinking(body, model)
            num_characters = num_characters_of(chat.messages, chat.told_tools)
            return await worked_out(
                http, lambda: _counted(chat, model, is_open=not body.is_last_turn_open), num_characters
            )


def _counted(chat: ChatCompletionRequest, model: ServedModel, *, is_open: bool) -> TokenCount:
    settings = chat.chat_template_kwargs
    tokens = encode_messages(chat.messages, model, chat.told_tools, is_open=is_open, settings=settings)
    return TokenCount(input_tokens=len(tokens))


def _thinking(body: Conversation, model: ServedModel) -> ChatCompletionRequest:
    return with_thinking(body.chat, model, is_wanted=body.wants_thoughts, param="thinking")
