"""``POST /v1/embeddings``: what is asked and answered, as in OpenAI's API."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType
from pydantic import BeforeValidator, Field, SkipValidation

from gateway.openai.answers.answers import PromptTokensDetails
from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.prompts import TextOrTokens, listed_texts
from gateway.openai.requests.schema import MAX_NAME_CHARACTERS, CacheSalt, GivenSlo, Id

MAX_INPUTS = 2048  # as OpenAI has it
MAX_DIMENSIONS = 65_536  # no model has so many; told before it is known which model is asked


class EmbeddingRequest(ApiObject):
    """``POST /v1/embeddings``."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    input: Annotated[
        SkipValidation[list[str | list[int]]],
        BeforeValidator(listed_texts("input", MAX_INPUTS), json_schema_input_type=TextOrTokens),
    ]
    """Each gets an embedding."""
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or the base64 of their float32, little-endian."""
    dimensions: Annotated[int, Field(ge=1, le=MAX_DIMENSIONS)] | None = None
    """Only so many numbers, the first ones; of use with models that were trained for it."""
    user: Id | None = None
    slo: GivenSlo | None = None
    """The promise asked for, as for a chat; an embedding is its first and last token."""
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    """As for a chat."""


class Embedding(Struct, frozen=True, kw_only=True):
    """Of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    """Of the input."""
    embedding: list[float] | str
    """Of length 1."""


class EmbeddingUsage(Struct, frozen=True, kw_only=True):
    """Token counts of all inputs."""

    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType = UNSET
    """As in `Usage`."""


class EmbeddingList(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/embeddings``."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
