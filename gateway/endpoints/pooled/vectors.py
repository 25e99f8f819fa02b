"""What endpoints have in common whose answers are numbers and no text: each prompt is a request of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from gateway.answers.event import SseEvent
from gateway.answers.settled import Settled
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.self_contained import SelfContained
from gateway.endpoints.texts.text_only import TextOnly
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from gateway.openai.pooled.embeddings import EmbeddingUsage
from gateway.openai.requests.schema import CacheSalt, CompletionRequest, GivenSlo
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.turn_threads import TenantThreads
from shared.messages.requests.payload import Constraint


class VectorRequest(Protocol):
    """What they ask."""

    @property
    def model(self) -> str:
        """By its name."""

    @property
    def slo(self) -> GivenSlo | None:
        """The promise asked for."""

    @property
    def cache_salt(self) -> CacheSalt | None:
        """Under which salt what is cached of it is found."""


Asking = TypeVar("Asking", bound=VectorRequest)


class VectorEndpoint(SelfContained, TextOnly, Generic[Asking]):
    """All of an `Endpoint` but its names, its prompts and how it writes answers."""

    prompt_param: str

    def asked(self, body: Asking) -> CompletionRequest:
        """A completion of one token, as which such an answer counts; nothing is drawn by chance."""
        return CompletionRequest(
            model=body.model,
            prompt=[],
            max_tokens=1,
            temperature=0.0,
            seed=0,
            slo=body.slo,
            cache_salt=body.cache_salt,
        )

    async def constraint(
        self,
        body: Asking,  # noqa: ARG002
        model: ServedModel,  # noqa: ARG002
        threads: TenantThreads,  # noqa: ARG002
    ) -> Constraint | None:
        """None: there is no text."""
        return None

    def token_bytes(self, body: Asking, model: ServedModel) -> Sequence[bytes]:  # noqa: ARG002
        """No token is shown."""
        return ()

    def thoughts(self, body: Asking, model: ServedModel) -> ThoughtReading | None:  # noqa: ARG002
        """There are none."""
        return None

    def room(self, body: Asking) -> job_parts.Room:  # noqa: ARG002
        """One token."""
        return job_parts.Room(1, 1, self.prompt_param)


class UnstreamedRenderer(Settled):
    """All of a `Renderer` but the answer in one piece: there is no other."""

    def opening(self, usage: Usage) -> list[SseEvent]:  # noqa: ARG002
        """Nothing."""
        return []

    def events(self, delta: Delta) -> list[SseEvent]:  # noqa: ARG002
        """Nothing."""
        return []

    def closing(self, usage: Usage) -> list[SseEvent]:  # noqa: ARG002
        """Nothing."""
        return []

    def failed(self, error: ApiError) -> list[SseEvent]:
        """The error."""
        return [error.body()]


def prompt_counts(usage: Usage) -> EmbeddingUsage:
    """The prompts alone: no token was written."""
    return EmbeddingUsage(
        prompt_tokens=usage.prompt_tokens,
        total_tokens=usage.prompt_tokens,
        prompt_tokens_details=usage.prompt_tokens_details,
    )
