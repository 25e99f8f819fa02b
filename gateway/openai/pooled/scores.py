"""``POST /v1/rerank`` and ``/v1/score``: what is asked and answered. OpenAI has neither: the first is as Jina's and
Cohere's APIs have it, the second as vLLM's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from pydantic import BeforeValidator, Field, SkipValidation, model_validator

from gateway.openai.objects.part import ApiObject, FieldConflictError
from gateway.openai.pooled.embeddings import EmbeddingUsage
from gateway.openai.requests.schema import MAX_NAME_CHARACTERS, CacheSalt, GivenSlo, Id

MAX_DOCUMENTS = 2048  # as of embeddings' inputs; Cohere advises 1,000
MAX_TOKENS = 1 << 20  # no model has room for so many; told before it is known which model is asked

Limit = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class DocumentText(ApiObject):
    """A document as an object."""

    text: str


def _documents(value: Any) -> list[str]:
    """Texts, of either kind."""
    if not isinstance(value, list) or not value:
        raise ValueError("documents are a list of strings, or of objects with a text; at least one")
    if len(value) > MAX_DOCUMENTS:
        raise ValueError(f"a request has at most {MAX_DOCUMENTS} documents, not {len(value)}")
    texts = [one["text"] if isinstance(one, dict) and one.keys() == {"text"} else one for one in value]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a document is a string, or an object with a text and nothing else")
    return texts


def _texts(value: Any) -> list[str]:
    """One text, or several."""
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError("it is a string or a list of strings; at least one")
    if len(texts) > MAX_DOCUMENTS:
        raise ValueError(f"a request has at most {MAX_DOCUMENTS} texts, not {len(texts)}")
    return texts


class ScoringRequest(ApiObject):
    """What both have in common."""

    model: Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
    instruction: str | None = None
    """What fits a query, for models whose prompt has a place for it; left out, the configuration's."""
    truncate_prompt_tokens: (
        Annotated[int, Field(ge=-1, le=MAX_TOKENS, json_schema_extra={"not": {"const": 0}})] | None
    ) = None
    """Documents are cut so that a prompt has so many tokens at most; -1: as many as the model takes."""
    user: Id | None = None
    slo: GivenSlo | None = None
    """The promise asked for, as for a chat; a score is its first and last token."""
    cache_salt: CacheSalt | None = Field(default=None, repr=False)
    """As for a chat."""

    @model_validator(mode="after")
    def _cut_is_possible(self) -> ScoringRequest:
        if self.truncate_prompt_tokens == 0:
            raise FieldConflictError("truncate_prompt_tokens", "a prompt has a token at least; -1: the most")
        return self


class RerankRequest(ScoringRequest):
    """``POST /v1/rerank``."""

    query: str
    documents: Annotated[
        SkipValidation[list[str]],
        BeforeValidator(_documents, json_schema_input_type=list[str] | list[DocumentText]),
    ]
    """Each gets a score."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Only so many results, the best ones."""
    return_documents: bool = False
    """Whether results repeat the texts."""
    max_tokens_per_doc: Limit | None = None
    """Of each document, only its beginning is read."""


class ScoreRequest(ScoringRequest):
    """``POST /v1/score``: one query with each document, or pairs."""

    text_1: Annotated[SkipValidation[list[str]], BeforeValidator(_texts, json_schema_input_type=str | list[str])]
    """Queries: one for all of ``text_2``, or one for each."""
    text_2: Annotated[SkipValidation[list[str]], BeforeValidator(_texts, json_schema_input_type=str | list[str])]
    """Documents."""

    @model_validator(mode="after")
    def _pairs_up(self) -> ScoreRequest:
        if len(self.text_1) not in (1, len(self.text_2)):
            raise FieldConflictError(
                "text_1",
                f"there are {len(self.text_1)} queries for {len(self.text_2)} documents; send one, or as many",
            )
        return self


class RankedDocument(Struct, frozen=True, kw_only=True):
    """A document as it came."""

    text: str


class RerankResult(Struct, frozen=True, kw_only=True):
    """Of one document."""

    index: int
    """Of the document in the request."""
    relevance_score: float
    """From 0 to 1."""
    document: RankedDocument | UnsetType = UNSET


class RerankAnswer(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/rerank``: the best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: EmbeddingUsage


class Score(Struct, frozen=True, kw_only=True):
    """Of one pair."""

    index: int
    """Of the document."""
    object: Literal["score"] = "score"
    score: float
    """From 0 to 1."""


class ScoreList(Struct, frozen=True, kw_only=True):
    """Answer of ``/v1/score``, in the order of the documents."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: EmbeddingUsage
