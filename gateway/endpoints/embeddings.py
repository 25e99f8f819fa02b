"""``POST /v1/embeddings``: each input is a request of its own, whose answer is one embedding."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.answers.event import SseEvent
from gateway.answers.unit_vector import base64_of, unit_vector
from gateway.endpoints import job_parts
from gateway.endpoints.text_prompts import text_prompts
from gateway.generation.generation import FLOAT_BYTES
from gateway.models.models import ServedModel
from gateway.openai import errors
from gateway.openai.answers import Usage
from gateway.openai.delta import Delta
from gateway.openai.embeddings import Embedding, EmbeddingList, EmbeddingRequest, EmbeddingUsage
from gateway.openai.errors import ApiError
from gateway.openai.schema import CompletionRequest
from gateway.reasoning.marks import ThoughtReading
from shared.config.engine import ModelTask
from shared.messages.payload import Constraint


class EmbeddingEndpoint:
    """Texts or token ids in, embeddings out."""

    operation = "embeddings"
    prompt_param = "input"
    body_model = EmbeddingRequest
    task: ModelTask = "embed"

    def asked(self, body: EmbeddingRequest) -> CompletionRequest:
        """A completion of one token, as which an embedding counts; nothing is drawn by chance."""
        return CompletionRequest(model=body.model, prompt=[], max_tokens=1, temperature=0.0, seed=0, slo=body.slo)

    async def constraint(self, body: EmbeddingRequest, model: ServedModel) -> Constraint | None:  # noqa: ARG002
        """None: there is no text."""
        return None

    async def prompts(self, body: EmbeddingRequest, model: ServedModel) -> list[list[int]]:
        """The inputs' tokens, with what the model wants around a text (EOS, mostly)."""
        return await text_prompts(body.input, model, "input", 1, model.tokenizer.encode_whole)

    def token_bytes(self, body: EmbeddingRequest, model: ServedModel) -> Sequence[bytes]:  # noqa: ARG002
        """No token is shown."""
        return ()

    def thoughts(self, body: EmbeddingRequest, model: ServedModel) -> ThoughtReading | None:  # noqa: ARG002
        """There are none."""
        return None

    def room(self, body: EmbeddingRequest) -> job_parts.Room:  # noqa: ARG002
        """One token."""
        return job_parts.Room(1, 1, "input")

    def renderer(
        self,
        body: EmbeddingRequest,
        model: ServedModel,  # noqa: ARG002
        request_id: str,  # noqa: ARG002
        created: int,  # noqa: ARG002
    ) -> EmbeddingRenderer:
        """One list."""
        return EmbeddingRenderer(body)


class EmbeddingRenderer:
    """Writes the answer, which is never streamed."""

    def __init__(self, body: EmbeddingRequest) -> None:
        self._body = body

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

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """In the order of the inputs. `ApiError` 400 where they have fewer numbers than are asked for."""
        wanted, has = self._body.dimensions, len(choices[0].embedding) // FLOAT_BYTES
        if wanted is not None and wanted > has:
            raise errors.invalid(f"the model's embeddings have {has} dimensions, not {wanted}", "dimensions")
        counts = EmbeddingUsage(
            prompt_tokens=usage.prompt_tokens,
            total_tokens=usage.prompt_tokens,
            prompt_tokens_details=usage.prompt_tokens_details,
        )
        data = [Embedding(index=one.choice, embedding=self._numbers(one.embedding)) for one in choices]
        return EmbeddingList(data=data, model=self._body.model, usage=counts)

    def _numbers(self, embedding: bytes) -> list[float] | str:
        values = unit_vector(embedding, self._body.dimensions)
        return base64_of(values) if self._body.encoding_format == "base64" else values
