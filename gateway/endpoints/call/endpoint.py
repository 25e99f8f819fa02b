"""The course of a call, the same for all that is answered by a model: admit, submit, answer, account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Generic, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel

from gateway.answers.answer import Renderer, answer_whole
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait
from gateway.answers.streamed import StreamedAnswer
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.pictures import num_extra_tokens
from gateway.generation.stop_strings import StopPattern
from gateway.http.body import BODY_BYTES, announced_bytes, read_body
from gateway.http.context import (
    BATCH_DEADLINE_S,
    CLIENT,
    CONTEXT,
    KEYS,
    METRICS,
    RATES,
    REQUEST_ID,
    SLOTS,
    VISITED,
    GatewayContext,
)
from gateway.http.flush import deliver
from gateway.inflight import tracing
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.calls.job import Job
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from gateway.inflight.timeline import Timeline
from gateway.models.models import ServedModel
from gateway.openai.errors import errors
from gateway.openai.requests.schema import GenerationRequest
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.promises import SLO_HEADER, choose_promise
from gateway.tenants.slots import Held
from gateway.tenants.turn_threads import THREADS, TenantThreads
from gateway.tenants.turnstile import ENTRANCE
from shared.config.engines.engine import ModelTask
from shared.config.services.queue import cache_partition
from shared.messages.requests.payload import Constraint
from shared.messages.requests.pictures import Picture
from shared.messages.requests.slo import Slo

JOBS_A_ROUND = 32  # of one call, that are made in one round of the loop

Body = TypeVar("Body", bound=BaseModel)


class Endpoint(Protocol[Body]):
    """What distinguishes an endpoint."""

    operation: str
    """Its name in OpenTelemetry's conventions (``gen_ai.operation.name``)."""
    prompt_param: str
    """The field that holds the prompt."""
    body_model: type[Body]
    task: ModelTask
    """What its models are served for."""

    async def recalled(self, http: web.Request, body: Body, room: ExitStack) -> None:
        """Find what the body leaves out, since it was kept here; ``room`` gets the bytes of it."""

    def asked(self, body: Body) -> GenerationRequest:
        """What is to be generated, in the words that all endpoints have in common."""

    async def constraint(self, body: Body, model: ServedModel, threads: TenantThreads) -> Constraint | None:
        """What the answer has to be; `ApiError` 400 for what it cannot. ``threads``: what takes long is done there."""

    async def prompts(self, body: Body, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The prompts as the model reads them; at least one."""

    async def pictures(self, body: Body, model: ServedModel, able: list[str], threads: TenantThreads) -> list[Picture]:
        """Images of its one prompt; ``able``: names of the models that take any. `ApiError` 400 for others."""

    def token_bytes(self, body: Body, model: ServedModel) -> Sequence[bytes]:
        """The text of each token, as far as the answer shows it."""

    def thoughts(self, body: Body, model: ServedModel) -> ThoughtReading | None:
        """How thoughts are told apart from the answer; None where they are not."""

    def room(self, body: Body) -> job_parts.Room:
        """How long the answer may be."""

    def renderer(self, body: Body, model: ServedModel, request_id: str, created: int) -> Renderer:
        """How the answer is written."""


class Handler(Generic[Body]):
    """Serves one endpoint; `handle` is what aiohttp calls."""

    def __init__(self, endpoint: Endpoint[Body]) -> None:
        self._endpoint = endpoint

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer one call; `ApiError` for everything that the client is refused.

        What it holds is given back when the answer is out: until then, its client decides how long it lies here.
        """
        with ExitStack() as held:
            response = await self._answer(http, held)
            await deliver(http, response)
        return response

    async def _answer(self, http: web.Request, room: ExitStack) -> web.StreamResponse:
        """The answer, as far as it is not sent yet; ``room`` gets the slots."""
        loop = asyncio.get_running_loop()
        app = http.app
        context = app[CONTEXT]
        timeline = Timeline(arrival_s=loop.time())
        with tracing.request_span(context.tracer, self._endpoint.operation, http.headers) as span:
            record = Visit(http[REQUEST_ID], http[CLIENT].tenant, span, timeline, path=http.path)
            http[VISITED] = True
            try:
                await app[ENTRANCE].turn(http[CLIENT].tenant)
                await app[RATES].enter(http[CLIENT])
                if not context.redis_health().has_room:
                    raise errors.no_memory()
                held = room.enter_context(app[SLOTS].take(http[CLIENT], 1, announced_bytes(http)))
                return await self._serve(http, record, held, room)
            except errors.ApiError as error:
                record.refuse(error)
                raise
            except web.HTTPException as error:  # of aiohttp: the body is too large
                record.refuse(errors.of_http_exception(error))
                raise
            except QueueFullError as error:
                refusal = errors.no_memory()
                record.refuse(refusal)
                raise refusal from error
            except QueueUnavailableError as error:
                refusal = errors.no_endpoints("the queue cannot be reached")
                record.refuse(refusal)
                raise refusal from error
            except asyncio.CancelledError:  # the client left
                record.abandon()
                raise
            finally:
                record.close(app[METRICS], loop.time())

    async def _serve(self, http: web.Request, record: Visit, held: Held, room: ExitStack) -> web.StreamResponse:
        app = http.app
        context = app[CONTEXT]
        endpoint = self._endpoint
        body = await read_body(http, endpoint.body_model)
        await endpoint.recalled(http, body, room)
        asked = endpoint.asked(body)
        held.shrink(http[BODY_BYTES])  # aiohttp keeps it
        model = job_parts.find_model(context, asked.model, endpoint.task)
        promise = choose_promise(
            context.config, http[CLIENT], asked.slo, http.headers.get(SLO_HEADER), http.get(BATCH_DEADLINE_S)
        )
        threads = app[THREADS].of(record.tenant)
        constraint = await endpoint.constraint(body, model, threads)
        pictures = await endpoint.pictures(body, model, context.models_with_pictures, threads)
        prompts = await endpoint.prompts(body, model, threads)
        app[SLOTS].check_fits(http[CLIENT], len(prompts), endpoint.prompt_param)
        await self._meter(http, record, sum(map(len, prompts)) + num_extra_tokens(pictures), room)
        payload_bytes = job_parts.payload_bytes(model.tokenizer.vocab_size, prompts, constraint, pictures)
        # a call has one slot already
        room.enter_context(app[SLOTS].take(http[CLIENT], len(prompts) - 1, payload_bytes))
        jobs = await self._jobs(context, record, body, model, prompts, pictures, constraint, promise.slo)
        record.admit(endpoint.operation, jobs)
        renderer = endpoint.renderer(body, model, record.request_id, int(time.time()))
        cold_start_ttl_s = context.config.gateway.cold_start_ttl_s
        patience = NewsWait.of(promise.queue_ttl_s, cold_start_ttl_s, is_ranked=asked.is_ranked)
        async with context.dispatcher.run(*jobs) as call:
            with app[KEYS].holding(http[CLIENT], call):
                record.submit(call)
                return await _respond(http, record, call, renderer, patience, asked)

    @staticmethod
    async def _meter(http: web.Request, record: Visit, num_tokens: int, room: ExitStack) -> None:
        """Count the prompts for their key, and when ``room`` is left, the answer."""
        rates, client = http.app[RATES], http[CLIENT]
        await rates.take_prompt(client, num_tokens)
        room.callback(lambda: rates.settle(client, num_tokens, record.timeline.num_tokens))

    async def _jobs(
        self,
        context: GatewayContext,
        record: Visit,
        body: Body,
        model: ServedModel,
        prompts: list[list[int]],
        pictures: list[Picture],
        constraint: Constraint | None,
        slo: Slo,
    ) -> list[Job]:
        """One a prompt; `ApiError` 400 when one of them does not fit."""
        endpoint = self._endpoint
        asked, room = endpoint.asked(body), endpoint.room(body)
        now_s, thoughts = time.time(), endpoint.thoughts(body, model)
        num_extra = num_extra_tokens(pictures)
        partition = cache_partition(context.config.tenants, record.tenant, asked.cache_salt or "")
        limits = [
            job_parts.max_tokens(model, len(one) + num_extra, room, endpoint.prompt_param, asked.num_candidates)
            for one in prompts
        ]
        jobs, stops = [], [StopPattern(one) for one in asked.stop]
        for number, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
            if number % JOBS_A_ROUND == JOBS_A_ROUND - 1:
                await asyncio.sleep(0)
            jobs.append(
                Job(
                    request_id=record.request_id if len(prompts) == 1 else f"{record.request_id}-{number}",
                    model=model.model,
                    adapter=model.adapter,
                    prompt_token_ids=prompt,
                    sampling=job_parts.sampling(context, model, asked, limit, constraint),
                    stops=stops,
                    token_bytes=endpoint.token_bytes(body, model),
                    slo=slo,
                    tenant=record.tenant,
                    enqueued_s=now_s,
                    span=record.span,
                    wants_place=asked.include_queue,
                    thoughts=thoughts,
                    block_tokens=context.config.engine.block_size if context.config.routes_warm else 0,
                    pictures=pictures,
                    partition=partition,
                    weights=model.weights,
                )
            )
        return jobs


async def _respond(
    http: web.Request,
    record: Visit,
    call: InflightCall,
    renderer: Renderer,
    patience: NewsWait,
    asked: GenerationRequest,
) -> web.StreamResponse:
    if not asked.stream:
        return await answer_whole(record, call, renderer, patience)
    answer = StreamedAnswer(http, record, call, renderer, patience, include_running_usage=asked.include_running_usage)
    return await answer.send(include_queue=asked.include_queue)
