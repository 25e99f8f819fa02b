"""What endpoints have in common whose requests are read as chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from gateway.endpoints.chats.chat import ChatEndpoint
from gateway.models.models import ServedModel
from gateway.openai.requests.schema import ChatCompletionRequest
from gateway.openai.requests.translated import TranslatedRequest
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.messages.requests.payload import Constraint
from shared.messages.requests.pictures import Picture

Translated = TypeVar("Translated", bound=TranslatedRequest)


class TranslatedEndpoint(Generic[Translated]):
    """All of an `Endpoint` but its names, its room and how it writes answers."""

    task: ModelTask = "generate"

    def __init__(self) -> None:
        self._chat = ChatEndpoint()

    def asked(self, body: Translated) -> ChatCompletionRequest:
        """The same as a chat."""
        return body.chat

    def chat_for(
        self,
        body: Translated,
        model: ServedModel,  # noqa: ARG002 (for endpoints that ask what it can)
    ) -> ChatCompletionRequest:
        """The same, as this model is asked; `ApiError` 400 for what it cannot do."""
        return body.chat

    async def constraint(
        self,
        body: Translated,
        model: ServedModel,
        threads: TenantThreads,
    ) -> Constraint | None:
        """As for a chat."""
        with body.in_own_words():
            return await self._chat.constraint(self.chat_for(body, model), model, threads)

    async def prompts(self, body: Translated, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """As for a chat; one."""
        with body.in_own_words():
            return await self._chat.prompts(self.chat_for(body, model), model, threads)

    async def pictures(
        self,
        body: Translated,
        model: ServedModel,
        able: list[str],
        threads: TenantThreads,
    ) -> list[Picture]:
        """As for a chat."""
        with body.in_own_words():
            return await self._chat.pictures(self.chat_for(body, model), model, able, threads)

    def token_bytes(self, body: Translated, model: ServedModel) -> Sequence[bytes]:
        """As for a chat."""
        return self._chat.token_bytes(self.chat_for(body, model), model)

    def thoughts(self, body: Translated, model: ServedModel) -> ThoughtReading | None:
        """As for a chat."""
        return self._chat.thoughts(self.chat_for(body, model), model)
