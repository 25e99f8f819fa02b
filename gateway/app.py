"""The aiohttp application: its routes, and what every response has in common."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as NextHandler
from aiohttp.typedefs import Middleware

from gateway.batches.calls import BatchCall
from gateway.document.openapi import CLASSIFY_PATHS, RERANK_PATHS, SCORE_PATHS, openapi_document
from gateway.endpoints.call.endpoint import Handler
from gateway.endpoints.chats import tokenization
from gateway.endpoints.chats.chat import ChatEndpoint
from gateway.endpoints.chats.messages import MessagesEndpoint, count_tokens
from gateway.endpoints.chats.responses import ResponsesEndpoint
from gateway.endpoints.listings import catalogue
from gateway.endpoints.listings.queue_report import show_queue
from gateway.endpoints.pooled.classes import ClassifyEndpoint
from gateway.endpoints.pooled.embeddings import EmbeddingEndpoint
from gateway.endpoints.pooled.scores import RerankEndpoint, ScoreEndpoint
from gateway.endpoints.stored import kept_responses
from gateway.endpoints.stored.batch_routes import batch_routes
from gateway.endpoints.texts.completions import CompletionEndpoint
from gateway.http import probes
from gateway.http.anthropic_errors import is_messages
from gateway.http.connection_metrics import ConnectionCollector
from gateway.http.connections import Connections, TimeOuts
from gateway.http.context import (
    ADMIN,
    BATCH_CALLS,
    BATCH_DEADLINE_S,
    CLIENT,
    CONNECTIONS,
    CONTEXT,
    KEYS,
    LARGE_BODIES,
    LEAVING,
    METRICS,
    RATES,
    REQUEST_ID,
    SLOTS,
    STARTED_S,
    GatewayContext,
)
from gateway.http.leaving import Leaving
from gateway.http.refusals import log_unvisited, refusal_answer
from gateway.metrics.coalescing_metrics import CoalescingCollector
from gateway.metrics.metrics import GatewayMetrics
from gateway.metrics.pulse import Pulse
from gateway.metrics.queue_metrics import QueueCollector
from gateway.metrics.redis_metrics import RedisCollector
from gateway.openai.errors import errors
from gateway.tenants.auth import KeyRing
from gateway.tenants.keys import Keys
from gateway.tenants.rate_exchange import RateExchange, RateMetrics
from gateway.tenants.slots import Slots
from gateway.tenants.turn_threads import THREADS, PreparingThreads
from gateway.tenants.turns import TenantTurns
from gateway.tenants.turnstile import ENTRANCE, ENTRIES_A_ROUND, REQUESTS_A_ROUND, TURNSTILE, Turnstile
from shared import __version__
from shared.messages.batches.batches import TOKEN_HEADER
from shared.service.admin.admin import Admin
from shared.service.background.tasks import cancel_all
from shared.telemetry.loop_lag import LoopLag

REQUEST_ID_HEADER = "x-treadle-request-id"
ANTHROPIC_ID_HEADER = "request-id"  # the same, where clients of Anthropic's look for it

_KEYED = ("/v1/", *RERANK_PATHS, *SCORE_PATHS, *CLASSIFY_PATHS, "/tokenize", "/detokenize")

_log = structlog.get_logger(__name__)


def build_app(context: GatewayContext, timeouts: TimeOuts = TimeOuts()) -> web.Application:  # noqa: B008 (frozen)
    """The gateway as an application, to be served by `shared.service.admin.admin.listen` with a `ClientsRunner`.

    A runner of one's own needs ``handler_cancellation=True``: a handler must end as soon as its client leaves, also
    while it waits for a first token.
    """
    options = context.config.gateway
    leaving, keys = Leaving(), Keys(KeyRing(context.config.keys))
    app = web.Application(
        client_max_size=options.max_body_bytes,
        middlewares=[leaving.middleware(), _answer_errors, _authenticate(keys)],
    )
    app[CONTEXT] = context
    app[KEYS] = keys
    app[METRICS] = GatewayMetrics(context.registry)
    app[RATES] = RateExchange(keys.rates, RateMetrics(context.registry))
    view, clock = context.dispatcher.view, asyncio.get_running_loop().time
    context.registry.register(QueueCollector(view, clock))
    context.registry.register(RedisCollector(context.redis_health))
    context.registry.register(CoalescingCollector(lambda: context.dispatcher.num_held_writes))
    app[SLOTS] = slots = Slots(
        context.config, lambda: view.shortest_wait_s(clock()), clock, has_others=lambda: keys.ring.has_tenants
    )
    app[ENTRANCE], app[TURNSTILE] = Turnstile(ENTRIES_A_ROUND), Turnstile(REQUESTS_A_ROUND)
    app[THREADS] = PreparingThreads()
    app.on_cleanup.append(_close_threads)
    app[METRICS].inflight.set_function(lambda: slots.num_taken)
    app[METRICS].inflight_bytes.set_function(lambda: slots.bytes_taken)
    app[CONNECTIONS] = Connections(options.most_connections, timeouts)
    context.registry.register(ConnectionCollector(app[CONNECTIONS]))
    app.cleanup_ctx.append(_watch_loop(LoopLag(context.registry)))
    app[LARGE_BODIES] = TenantTurns(1)  # one at a time: threads share the interpreter
    app[STARTED_S] = int(time.time())
    pulse = Pulse()
    app.cleanup_ctx.append(pulse.beating)
    app[ADMIN] = admin = Admin(  # answers from a thread of its own: what it reads is replaced, never changed
        not_ready=context.not_ready,
        status=lambda: {
            "inflight": slots.num_taken,
            "keys": keys.describe(),
            "models": {"served": list(context.models), "problem": context.models_problem()},
        },
        hangs=pulse.hangs,
        registry=context.registry,
    )

    @cache
    def document() -> dict[str, Any]:
        """Made for the first request: it takes as long as a tenth of a start."""
        has_batches = context.config.batches.enabled
        return openapi_document(__version__, has_keys=bool(context.config.keys), has_batches=has_batches)

    async def openapi(_: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(document))

    app.add_routes(
        [
            web.post("/v1/chat/completions", Handler(ChatEndpoint()).handle),
            web.post("/v1/completions", Handler(CompletionEndpoint()).handle),
            web.post("/v1/embeddings", Handler(EmbeddingEndpoint()).handle),
            *[web.post(path, Handler(RerankEndpoint()).handle) for path in RERANK_PATHS],
            *[web.post(path, Handler(ScoreEndpoint()).handle) for path in SCORE_PATHS],
            *[web.post(path, Handler(ClassifyEndpoint()).handle) for path in CLASSIFY_PATHS],
            web.post("/v1/responses", Handler(ResponsesEndpoint()).handle),
            web.get("/v1/responses/{response}", kept_responses.show_response),
            web.delete("/v1/responses/{response}", kept_responses.remove_response),
            web.get("/v1/responses/{response}/input_items", kept_responses.list_input_items),
            web.post("/v1/messages", Handler(MessagesEndpoint()).handle),
            web.post("/v1/messages/count_tokens", count_tokens),
            web.get("/v1/models", catalogue.list_models),
            web.get("/v1/models/{name:.+}", catalogue.show_model),
            web.get("/v1/queue", show_queue),
            web.post("/tokenize", tokenization.tokenize),
            web.post("/detokenize", tokenization.detokenize),
            *batch_routes(app, context, keys),
            web.get("/health", probes.health),
            web.get("/version", probes.version),
            web.get("/openapi.json", openapi),
            *admin.health_routes(),
        ]
    )
    app[LEAVING] = leaving
    app.on_response_prepare.extend([_name_request, leaving.tell])
    return app


@web.middleware
async def _answer_errors(request: web.Request, handler: NextHandler) -> web.StreamResponse:
    """Every failure gets its API's shape and its status; an unforeseen one is logged, here and only here."""
    request[REQUEST_ID] = _new_request_id(request)
    try:
        return await handler(request)
    except errors.ApiError as error:
        refusal = error
    except web.HTTPException as error:
        refusal = errors.of_http_exception(error)
    except Exception:
        _log.exception("request_failed", request_id=request[REQUEST_ID], path=request.path)
        return refusal_answer(errors.internal(), request.path, request[REQUEST_ID])
    log_unvisited(refusal, request)
    return refusal_answer(refusal, request.path, request[REQUEST_ID])


def _watch_loop(lag: LoopLag) -> Callable[[web.Application], AsyncIterator[None]]:
    async def watching(_: web.Application) -> AsyncIterator[None]:
        watch = asyncio.create_task(lag.watch(), name="loop-lag")
        yield
        await cancel_all([watch])

    return watching


def _authenticate(keys: Keys) -> Middleware:
    @web.middleware
    async def authenticate(request: web.Request, handler: NextHandler) -> web.StreamResponse:
        """The API needs a key; health and the document do not."""
        if request.path.startswith(_KEYED):
            batch = await _batch_call(request) if TOKEN_HEADER in request.headers else None
            if batch is None:
                request[CLIENT] = keys.authenticate(request.headers)
            else:
                request[CLIENT], request[BATCH_DEADLINE_S] = batch.client, batch.deadline_s
        return await handler(request)

    return authenticate


async def _batch_call(request: web.Request) -> BatchCall | None:
    calls = request.app.get(BATCH_CALLS)
    return await calls.find(request.headers) if calls else None


async def _name_request(request: web.Request, response: web.StreamResponse) -> None:
    # aiohttp answers some requests before any middleware runs, for example an `Expect` that it cannot meet
    request_id = request.get(REQUEST_ID) or _new_request_id(request)
    response.headers[REQUEST_ID_HEADER] = request_id
    if is_messages(request.path):
        response.headers[ANTHROPIC_ID_HEADER] = request_id
    if CLIENT in request:
        now = asyncio.get_running_loop().time()
        response.headers.update(request.app[KEYS].rates.headers(request[CLIENT], now))


def _new_request_id(request: web.Request) -> str:
    return request.app[CONTEXT].random_bytes(16).hex()


async def _close_threads(app: web.Application) -> None:
    app[THREADS].close()
