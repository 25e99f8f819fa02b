"""``POST /v1/classify``: what is asked and answered. OpenAI has none: it is as vLLM's and SGLang's APIs have it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct
from pydantic import BeforeValidator, Field, SkipValidation

from gateway.openai.objects.part import ApiObject
from gateway.openai.pooled.embeddings import MAX_INPUTS, EmbeddingUsage
from gateway.openai.requests.prompts import TextOrTokens, listed_texts
from gateway.openai.requests.schema import MAX_NAME_CHARACTERS, CacheSalt, GivenSlo, Id


class ClassifyRequest(ApiObject):
    """``POST /v1/classify``."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    input: Annotated[
        SkipValidation[list[str | list[int]]],
        BeforeValidator(listed_texts("input", MAX_INPUTS), json_schema_input_type=TextOrTokens),
    ]
    """Each gets a label."""
    user: Id | None = None
    slo: GivenSlo | None = None
    """The promise asked for, as for a chat; a label is its first and last token."""
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    """As for a chat."""


class Classification(Struct, frozen=True, kw_only=True):
    """Of one input."""

    index: int
    """Of the input."""
    label: str
    """The likeliest one; of equals, the first."""
    probs: list[float]
    """From 0 to 1, of each label in the model's order."""
    num_classes: int


class ClassificationList(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/classify``, in the order of the inputs."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Classification]
    usage: EmbeddingUsage
