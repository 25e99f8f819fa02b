"""``POST /v1/responses``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from aiohttp import web

from gateway.endpoints.call.job_parts import Room
from gateway.endpoints.chats.chat import choice_readings
from gateway.endpoints.chats.translated import TranslatedEndpoint
from gateway.generation.logprobs import LogprobWriter
from gateway.http.body import read_kept, telling_faults
from gateway.http.context import CLIENT, CONTEXT, METRICS, SLOTS
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.responses.rendering.renderer import ResponsesRenderer
from gateway.responses.rendering.text_scores import TextScores
from gateway.responses.requests.kept_conversation import KeptConversation
from gateway.responses.requests.request import ResponsesRequest


class ResponsesEndpoint(TranslatedEndpoint[ResponsesRequest]):
    """Items in, items out."""

    operation = "chat"  # OpenTelemetry has no other name for it
    prompt_param = "input"
    body_model = ResponsesRequest

    async def recalled(self, http: web.Request, body: ResponsesRequest, room: ExitStack) -> None:
        """The conversation that the request goes on with."""
        kept, client = http.app[CONTEXT].kept_responses, http[CLIENT]
        if kept is None:
            if body.previous_response_id is not None:
                raise errors.unsupported("previous_response_id", "input")
            return
        earlier: Sequence[dict[str, Any]] = ()
        if body.previous_response_id is not None:
            found = await kept.find(client.tenant, body.previous_response_id)
            if found is None:
                raise errors.invalid(
                    "the previous response is not kept, or not any more: send its conversation as 'input'",
                    "previous_response_id",
                    code="previous_response_not_found",
                )
            response, num_bytes = found
            earlier = response.items
            room.enter_context(http.app[SLOTS].take(client, 0, num_bytes))
            with telling_faults():
                await read_kept(http, num_bytes, partial(body.go_on, earlier))
        if body.store is not False:
            metrics = http.app[METRICS]
            body.keep_in(KeptConversation(kept, client.tenant, earlier, metrics.unkept_responses.inc))

    def room(self, body: ResponsesRequest) -> Room:
        """As for a chat: without a limit, what fits into the context."""
        return Room(body.max_output_tokens, None, "max_output_tokens")

    def renderer(self, body: ResponsesRequest, model: ServedModel, request_id: str, created: int) -> ResponsesRenderer:
        """The answer of a chat, as items."""
        (reading,) = choice_readings(body.chat, model, request_id)
        writer = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0)
        scores = TextScores(writer) if body.tells_logprobs else None
        return ResponsesRenderer(body.filled(model.sampling), reading, request_id, created, scores)  # which it tells
