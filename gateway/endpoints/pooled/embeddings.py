"""``POST /v1/embeddings``: each input is a request of its own, whose answer is one embedding."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.answers.unit_vector import base64_of, unit_vector
from gateway.endpoints.pooled.vectors import UnstreamedRenderer, VectorEndpoint, prompt_counts
from gateway.endpoints.texts.text_prompts import text_prompts
from gateway.generation.generation import FLOAT_BYTES
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors import errors
from gateway.openai.pooled.embeddings import Embedding, EmbeddingList, EmbeddingRequest
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask


class EmbeddingEndpoint(VectorEndpoint[EmbeddingRequest]):
    """Texts or token ids in, embeddings out."""

    operation = "embeddings"
    prompt_param = "input"
    body_model = EmbeddingRequest
    task: ModelTask = "embed"

    async def prompts(self, body: EmbeddingRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The inputs' tokens, with what the model wants around a text (EOS, mostly)."""
        return await text_prompts(body.input, model, "input", 1, model.tokenizer.encode_whole, threads)

    def renderer(
        self,
        body: EmbeddingRequest,
        model: ServedModel,  # noqa: ARG002
        request_id: str,  # noqa: ARG002
        created: int,  # noqa: ARG002
    ) -> EmbeddingRenderer:
        """One list."""
        return EmbeddingRenderer(body)


class EmbeddingRenderer(UnstreamedRenderer):
    """Writes the answer, which is never streamed."""

    def __init__(self, body: EmbeddingRequest) -> None:
        self._body = body

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """In the order of the inputs. `ApiError` 400 where they have fewer numbers than are asked for."""
        wanted, has = self._body.dimensions, len(choices[0].embedding) // FLOAT_BYTES
        if wanted is not None and wanted > has:
            raise errors.invalid(f"the model's embeddings have {has} dimensions, not {wanted}", "dimensions")
        data = [Embedding(index=one.choice, embedding=self._numbers(one.embedding)) for one in choices]
        return EmbeddingList(data=data, model=self._body.model, usage=prompt_counts(usage))

    def _numbers(self, embedding: bytes) -> list[float] | str:
        values = unit_vector(embedding, self._body.dimensions)
        return base64_of(values) if self._body.encoding_format == "base64" else values
