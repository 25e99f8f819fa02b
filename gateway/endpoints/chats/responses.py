"""``POST /v1/responses``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from aiohttp import web

from gateway.endpoints.call.held import take_conversation
from gateway.endpoints.call.job_parts import Room
from gateway.endpoints.chats.chat import choice_readings
from gateway.endpoints.chats.translated import TranslatedEndpoint
from gateway.generation.logprobs import LogprobWriter
from gateway.http.body import read_kept, telling_faults
from gateway.http.context import BATCH_DEADLINE_S, CLIENT, CONTEXT, METRICS, REQUEST_ID, SLOTS
from gateway.kept.held_conversation import HeldConversation
from gateway.models.models import ServedModel
from gateway.openai.errors import errors, kept_errors
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
        if body.background and BATCH_DEADLINE_S in http:
            raise errors.invalid("a request of a batch is not for the background: it is answered there", "background")
        if kept is None:
            if body.previous_response_id is not None:
                raise errors.unsupported("previous_response_id", "input")
            for name in ("conversation", "background"):
                if getattr(body, name):
                    raise kept_errors.nothing_kept(name)
            return
        earlier, held, num_bytes = await self._earlier(http, body, room)
        if not body.is_whole:
            room.enter_context(http.app[SLOTS].take(client, 0, num_bytes))
            with telling_faults():
                await read_kept(http, num_bytes, partial(body.go_on, earlier))
        if body.store is not False or held is not None:
            metrics = http.app[METRICS]
            store = kept if body.store is not False else None
            body.keep_in(KeptConversation(store, client.tenant, earlier, metrics.unkept_responses.inc, held))

    async def _earlier(
        self, http: web.Request, body: ResponsesRequest, room: ExitStack
    ) -> tuple[Sequence[dict[str, Any]], HeldConversation | None, int]:
        """Items before the request's own, the conversation that they are of, and how many bytes they have."""
        context, tenant = http.app[CONTEXT], http[CLIENT].tenant
        if body.conversation is not None and context.conversations is not None:
            held, num_bytes = await take_conversation(
                context.conversations, tenant, body.conversation, f"resp_{http[REQUEST_ID]}", "conversation"
            )
            room.callback(held.unlock_soon)
            return held.found.items, held, num_bytes
        if body.previous_response_id is None or context.kept_responses is None:
            return (), None, 0
        found = await context.kept_responses.find(tenant, body.previous_response_id)
        if found is None:
            if context.background and await context.background.find(tenant, body.previous_response_id):
                raise kept_errors.not_ended("previous_response_id")
            raise errors.invalid(
                "the previous response is not kept, or not any more: send its conversation as 'input'",
                "previous_response_id",
                code="previous_response_not_found",
            )
        response, num_bytes = found
        return response.items, None, num_bytes

    def room(self, body: ResponsesRequest) -> Room:
        """As for a chat: without a limit, what fits into the context."""
        return Room(body.max_output_tokens, None, "max_output_tokens")

    def renderer(self, body: ResponsesRequest, model: ServedModel, request_id: str, created: int) -> ResponsesRenderer:
        """The answer of a chat, as items."""
        (reading,) = choice_readings(body.chat, model, request_id)
        writer = LogprobWriter(model.tokenizer, has_top=body.top_logprobs > 0)
        scores = TextScores(writer) if body.tells_logprobs else None
        return ResponsesRenderer(body.filled(model.sampling), reading, request_id, created, scores)  # which it tells
