"""``POST /v1/rerank`` and ``/v1/score``: each document is a request of its own, whose answer is one score."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct

from gateway.answers.relevance import relevance
from gateway.endpoints.pooled.score_prompts import score_prompts
from gateway.endpoints.pooled.vectors import UnstreamedRenderer, VectorEndpoint, prompt_counts
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.pooled.scores import (
    RankedDocument,
    RerankAnswer,
    RerankRequest,
    RerankResult,
    Score,
    ScoreList,
    ScoreRequest,
)
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask


class RerankEndpoint(VectorEndpoint[RerankRequest]):
    """A query and documents in, the documents in their order out."""

    operation = "rerank"
    prompt_param = "documents"
    body_model = RerankRequest
    task: ModelTask = "score"

    async def prompts(self, body: RerankRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """One a document."""
        pairs = [(body.query, document) for document in body.documents]
        return await score_prompts(body, pairs, model, body.max_tokens_per_doc, self.prompt_param, threads)

    def renderer(
        self,
        body: RerankRequest,
        model: ServedModel,  # noqa: ARG002
        request_id: str,
        created: int,  # noqa: ARG002
    ) -> RerankRenderer:
        """One list."""
        return RerankRenderer(body, f"rerank-{request_id}")


class RerankRenderer(UnstreamedRenderer):
    """Writes the answer, which is never streamed."""

    def __init__(self, body: RerankRequest, answer_id: str) -> None:
        self._body, self._id = body, answer_id

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """The best first; of equals, the one that came first."""
        scores = {one.choice: relevance(one.embedding) for one in choices}
        best = sorted(scores, key=lambda index: (-scores[index], index))[: self._body.top_n]
        results = [
            RerankResult(
                index=index,
                relevance_score=scores[index],
                document=RankedDocument(text=self._body.documents[index]) if self._body.return_documents else UNSET,
            )
            for index in best
        ]
        return RerankAnswer(id=self._id, model=self._body.model, results=results, usage=prompt_counts(usage))


class ScoreEndpoint(VectorEndpoint[ScoreRequest]):
    """Queries and documents in, a score of each pair out."""

    operation = "score"
    prompt_param = "text_2"
    body_model = ScoreRequest
    task: ModelTask = "score"

    async def prompts(self, body: ScoreRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """One a pair."""
        queries = body.text_1 * len(body.text_2) if len(body.text_1) == 1 else body.text_1
        pairs = list(zip(queries, body.text_2, strict=True))
        return await score_prompts(body, pairs, model, None, self.prompt_param, threads)

    def renderer(
        self,
        body: ScoreRequest,
        model: ServedModel,  # noqa: ARG002
        request_id: str,
        created: int,
    ) -> ScoreRenderer:
        """One list."""
        return ScoreRenderer(body, f"score-{request_id}", created)


class ScoreRenderer(UnstreamedRenderer):
    """Writes the answer, which is never streamed."""

    def __init__(self, body: ScoreRequest, answer_id: str, created: int) -> None:
        self._body, self._id, self._created = body, answer_id, created

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """In the order of the pairs."""
        data = [Score(index=one.choice, score=relevance(one.embedding)) for one in choices]
        return ScoreList(
            id=self._id, created=self._created, model=self._body.model, data=data, usage=prompt_counts(usage)
        )
