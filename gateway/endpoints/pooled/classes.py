"""``POST /v1/classify``: each input is a request of its own, whose answer is how likely each label is."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.answers.probabilities import probabilities
from gateway.endpoints.pooled.vectors import UnstreamedRenderer, VectorEndpoint, prompt_counts
from gateway.endpoints.texts.text_prompts import text_prompts
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.pooled.classes import Classification, ClassificationList, ClassifyRequest
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.files.classifier import ClassLabels


class ClassifyEndpoint(VectorEndpoint[ClassifyRequest]):
    """Texts or token ids in, labels out."""

    operation = "classify"
    prompt_param = "input"
    body_model = ClassifyRequest
    task: ModelTask = "classify"

    async def prompts(self, body: ClassifyRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The inputs' tokens, with what the model wants around a text."""
        return await text_prompts(body.input, model, "input", 1, model.tokenizer.encode_whole, threads)

    def renderer(
        self, body: ClassifyRequest, model: ServedModel, request_id: str, created: int
    ) -> ClassificationRenderer:
        """One list."""
        assert model.labels is not None, "found by its task"
        return ClassificationRenderer(body, model.labels, f"classify-{request_id}", created)


class ClassificationRenderer(UnstreamedRenderer):
    """Writes the answer, which is never streamed."""

    def __init__(self, body: ClassifyRequest, labels: ClassLabels, answer_id: str, created: int) -> None:
        self._body, self._labels, self._id, self._created = body, labels, answer_id, created

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """In the order of the inputs."""
        return ClassificationList(
            id=self._id,
            created=self._created,
            model=self._body.model,
            data=[self._classified(one) for one in choices],
            usage=prompt_counts(usage),
        )

    def _classified(self, answer: Delta) -> Classification:
        probs, names = probabilities(answer.embedding, self._labels), self._labels.names
        best = names[probs.index(max(probs))]
        return Classification(index=answer.choice, label=best, probs=probs, num_classes=len(names))
