"""The course of a call, the same for all that is answered by a model: admit, submit, answer, account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Generic

from aiohttp import web

from gateway.answers.answer import Renderer, answer_whole
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait
from gateway.answers.streamed import StreamedAnswer
from gateway.endpoints.call.preparation import Body, BodyPrompts, Endpoint, find_prompts, make_jobs, patience_of
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
)
from gateway.http.flush import deliver
from gateway.inflight import tracing
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.calls.job import Job
from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError
from gateway.inflight.timeline import Timeline
from gateway.openai.errors import errors
from gateway.openai.requests.schema import GenerationRequest
from gateway.tenants.promises import SLO_HEADER
from gateway.tenants.slots import Held
from gateway.tenants.turn_threads import THREADS
from gateway.tenants.turnstile import ENTRANCE


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
        held.shrink(http[BODY_BYTES])  # aiohttp keeps it
        threads = app[THREADS].of(record.tenant)
        found = await find_prompts(
            context, threads, endpoint, body, http[CLIENT], http.headers.get(SLO_HEADER), http.get(BATCH_DEADLINE_S)
        )
        app[SLOTS].check_fits(http[CLIENT], len(found.token_ids), endpoint.prompt_param)
        await self._meter(http, record, found.num_tokens, room)
        # a call has one slot already
        room.enter_context(app[SLOTS].take(http[CLIENT], len(found.token_ids) - 1, found.num_payload_bytes))
        jobs = await make_jobs(context, record, found)
        record.admit(endpoint.operation, jobs)
        return await self.respond(http, record, found, jobs, room)

    async def respond(
        self,
        http: web.Request,
        record: Visit,
        found: BodyPrompts[Body],
        jobs: Sequence[Job],
        room: ExitStack,  # noqa: ARG002 (for handlers that give it back)
    ) -> web.StreamResponse:
        """Submit what was asked for, and answer it; ``room`` has the slots."""
        context, asked = http.app[CONTEXT], self._endpoint.asked(found.body)
        renderer = self._endpoint.renderer(found.body, found.model, record.request_id, int(time.time()))
        patience = patience_of(context, found)
        async with context.dispatcher.run(*jobs) as call:
            with http.app[KEYS].holding(http[CLIENT], call):
                record.submit(call)
                return await _respond(http, record, call, renderer, patience, asked)

    @staticmethod
    async def _meter(http: web.Request, record: Visit, num_tokens: int, room: ExitStack) -> None:
        """Count the prompts for their key, and when ``room`` is left, the answer."""
        rates, client = http.app[RATES], http[CLIENT]
        await rates.take_prompt(client, num_tokens)
        room.callback(lambda: rates.settle(client, num_tokens, record.timeline.num_tokens))


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
