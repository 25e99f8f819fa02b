"""The course of a call, the same for chat and completions: admit, submit, answer, account."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, Protocol, TypeVar

from aiohttp import web

from gateway import admission, errors, tracing, visit
from gateway.answer import MAX_SILENCE_S, Patience, Renderer, answer_stream, answer_whole
from gateway.body import read_body
from gateway.context import CLIENT, CONTEXT, METRICS, REQUEST_ID, SLOTS
from gateway.job import Job
from gateway.models import ServedModel
from gateway.openai_schema import GenerationRequest
from gateway.promises import SLO_HEADER, choose_promise
from gateway.queue_port import QueueUnavailableError
from gateway.timeline import Timeline
from gateway.visit import Visit

Body = TypeVar("Body", bound=GenerationRequest)


class Endpoint(Protocol[Body]):
    """What distinguishes an endpoint."""

    operation: str
    """Its name in OpenTelemetry's conventions (``gen_ai.operation.name``)."""
    prompt_param: str
    """The field that holds the prompt."""
    body_model: type[Body]

    async def prompt_token_ids(self, body: Body, model: ServedModel) -> list[int]:
        """The prompt as the model reads it."""

    def room(self, body: Body) -> admission.Room:
        """How long the answer may be."""

    def renderer(self, body: Body, model: ServedModel, request_id: str, created: int) -> Renderer:
        """How the answer is written."""


class Handler(Generic[Body]):
    """Serves one endpoint; `handle` is what aiohttp calls."""

    def __init__(self, endpoint: Endpoint[Body]) -> None:
        self._endpoint = endpoint

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer one call; `ApiError` for everything that the client is refused."""
        loop = asyncio.get_running_loop()
        context = http.app[CONTEXT]
        timeline = Timeline(arrival_s=loop.time())
        with tracing.request_span(context.tracer, self._endpoint.operation, http.headers) as span:
            record = Visit(http[REQUEST_ID], http[CLIENT].tenant, span, timeline)
            try:
                with http.app[SLOTS].take():
                    return await self._serve(http, record)
            except errors.ApiError as error:
                record.refuse(error)
                raise
            except web.HTTPException:  # of aiohttp: the body is too large
                record.outcome = visit.REJECTED
                raise
            except QueueUnavailableError as error:
                refusal = errors.no_endpoints("the queue cannot be reached")
                record.refuse(refusal)
                raise refusal from error
            except asyncio.CancelledError:  # the client left
                record.abandon()
                raise
            finally:
                record.close(http.app[METRICS], loop.time())

    async def _serve(self, http: web.Request, record: Visit) -> web.StreamResponse:
        context = http.app[CONTEXT]
        endpoint = self._endpoint
        body = await read_body(http, endpoint.body_model)
        model = admission.find_model(context, body.model)
        promise = choose_promise(context.config, http[CLIENT], body.slo, http.headers.get(SLO_HEADER))
        prompt = await endpoint.prompt_token_ids(body, model)
        limit = admission.max_tokens(model, prompt, endpoint.room(body), endpoint.prompt_param, body.num_candidates)
        job = Job(
            request_id=record.request_id,
            model=model.name,
            prompt_token_ids=prompt,
            sampling=admission.sampling(context, model, body, limit),
            stops=body.stop,
            token_bytes=model.tokenizer.token_bytes,
            slo=promise.slo,
            tenant=record.tenant,
            traceparent=tracing.traceparent(record.span),
        )
        record.admit(endpoint.operation, job)
        renderer = endpoint.renderer(body, model, record.request_id, int(time.time()))
        # of a ranked request there is no sign of life before it is complete
        patience = Patience(promise.queue_ttl_s + (MAX_SILENCE_S if body.is_ranked else 0.0))
        async with context.dispatcher.run(job) as request:
            if body.stream:
                return await answer_stream(http, record, request, renderer, patience, include_usage=body.include_usage)
            return await answer_whole(record, request, renderer, patience)
