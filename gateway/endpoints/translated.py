"""What endpoints have in common whose requests are read as chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from gateway.endpoints.chat import ChatEndpoint
from gateway.models.models import ServedModel
from gateway.openai.schema import ChatCompletionRequest
from gateway.openai.translated import TranslatedRequest
from gateway.reasoning.marks import ThoughtReading
from shared.messages.payload import Constraint

Translated = TypeVar("Translated", bound=TranslatedRequest)


class TranslatedEndpoint(Generic[Translated]):
    """All of an `Endpoint` but its names, its room and how it writes answers."""

    def __init__(self) -> None:
        self._chat = ChatEndpoint()

    def asked(self, body: Translated) -> ChatCompletionRequest:
        """The same as a chat."""
        return body.chat

    async def constraint(self, body: Translated, model: ServedModel) -> Constraint | None:
        """As for a chat."""
        with body.in_own_words():
            return await self._chat.constraint(body.chat, model)

    async def prompts(self, body: Translated, model: ServedModel) -> list[list[int]]:
        """As for a chat; one."""
        with body.in_own_words():
            return await self._chat.prompts(body.chat, model)

    def token_bytes(self, body: Translated, model: ServedModel) -> Sequence[bytes]:
        """As for a chat."""
        return self._chat.token_bytes(body.chat, model)

    def thoughts(self, body: Translated, model: ServedModel) -> ThoughtReading | None:
        """As for a chat."""
        return self._chat.thoughts(body.chat, model)
