"""``POST /v1/responses``."""

from __future__ import annotations

from gateway.endpoints.chat import choice_readings
from gateway.endpoints.job_parts import Room
from gateway.endpoints.translated import TranslatedEndpoint
from gateway.generation.logprobs import LogprobWriter
from gateway.models.models import ServedModel
from gateway.responses.renderer import ResponsesRenderer
from gateway.responses.request import ResponsesRequest
from gateway.responses.text_scores import TextScores


class ResponsesEndpoint(TranslatedEndpoint[ResponsesRequest]):
    """Items in, items out."""

    operation = "chat"  # OpenTelemetry has no other name for it
    prompt_param = "input"
    body_model = ResponsesRequest

    def room(self, body: ResponsesRequest) -> Room:
        """As for a chat: without a limit, what fits into the context."""
        return Room(body.max_output_tokens, None, "max_output_tokens")

    def renderer(self, body: ResponsesRequest, model: ServedModel, request_id: str, created: int) -> ResponsesRenderer:
        """The answer of a chat, as items."""
        (reading,) = choice_readings(body.chat, model, request_id)
        writer = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0)
        scores = TextScores(writer) if body.tells_logprobs else None
        return ResponsesRenderer(body, reading, request_id, created, scores)
