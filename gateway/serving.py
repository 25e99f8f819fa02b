"""A process that serves clients, alone or as one of several workers: models, Redis, the application."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time

import structlog
from aiohttp import web
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from gateway.app import build_app
from gateway.http.clients_port import ClientsRunner
from gateway.http.context import ADMIN, LEAVING, RATES, GatewayContext
from gateway.http.leaving import CUT_S
from gateway.inflight.bus.redis_queue import RedisQueue
from gateway.inflight.coalescing import Coalescing
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.kept_responses import kept_responses
from gateway.models.models import load_models
from gateway.tenants.kept_rates import KeptRates
from gateway.workers.admin_thread import served_aside
from gateway.workers.key_watch import watching_keys
from gateway.workers.model_watch import watching_models
from gateway.workers.open_files import allow_connections
from gateway.workers.served_models import ServedModels
from gateway.workers.sockets import open_sockets
from gateway.workers.worker import Worker, share
from shared.bus import streams
from shared.bus.bus import check_reachable, connect
from shared.config.config import ClusterConfig
from shared.processes import garbage
from shared.service.admin.admin import Admin, listen_on_sockets, serve_admin, serve_admin_on_path
from shared.service.log.durability import Waiting, check_durability
from shared.service.service import admin_port, instance_name, redis_url, stop_on_signals
from shared.telemetry.telemetry import configure_logging, configure_tracing

# A thread that computes gives way to the event loop after this many seconds, and the loop has to ask at every turn.
SWITCH_S = 0.0005

log = structlog.get_logger()


async def serve(whole: ClusterConfig, worker: Worker | None) -> None:
    """Serve until SIGTERM, or until the parent has ended. ``worker`` is None where this process is the gateway."""
    config = share(whole, worker.num_workers) if worker else whole
    gateway_id = f"{_instance(worker)}-{secrets.token_hex(4)}"  # of this life: an earlier one's clients are gone
    configure_logging("gateway", gateway_id)
    configure_tracing("gateway", gateway_id, config.otlp_endpoint)
    sys.setswitchinterval(SWITCH_S)
    allow_connections(config.gateway.most_connections)
    stop, listening = stop_on_signals(), asyncio.Event()
    if worker:
        worker.watch_parent(stop.set)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # meant for the parent; a terminal sends it to all
    redis = connect(redis_url(config))
    await check_reachable(redis)
    await check_durability(redis, config.durability)
    waiting = Waiting(config.durability, "gateway") if config.durability.is_on else None
    started = time.monotonic()
    models = ServedModels(await asyncio.to_thread(load_models, config))
    log.info("models ready", models=list(models), seconds=round(time.monotonic() - started, 2))
    queue = RedisQueue(redis, gateway_id, waiting)
    dispatcher = Dispatcher(queue, gateway_id, Coalescing(config.gateway.max_coalesce_s))

    def not_ready() -> str:
        return queue.not_ready or ("stopping" if stop.is_set() else "" if listening.is_set() else "not listening yet")

    context = GatewayContext(
        config=config,
        models=models,
        models_problem=lambda: models.problem,
        withheld=lambda: models.withheld,
        dispatcher=dispatcher,
        not_ready=not_ready,
        redis_health=lambda: queue.health,
        kept_responses=kept_responses(queue.scripts, config),
        registry=REGISTRY,
        read_batch_token=(lambda: _read_batch_token(redis)) if config.batches.enabled else None,
    )
    options, app = config.gateway, build_app(context)
    num_processes = worker.num_workers if worker else 1
    async with (
        queue.serving(dispatcher, stop.set),
        app[RATES].telling(KeptRates(queue.scripts, gateway_id), stop.set),
        watching_keys(app, stop.set, num_processes),
        watching_models(config, models, REGISTRY, stop.set),
        served_aside(lambda: _listen_for_operators(app[ADMIN], config, worker)),
    ):
        sockets = worker.open_sockets() if worker else open_sockets(options.host, options.port)
        runner = await listen_on_sockets(app, sockets, CUT_S, ClientsRunner)
        garbage.settle()
        listening.set()
        log.info("listening", host=options.host, port=options.port, drain_s=options.drain_s)
        try:
            await stop.wait()
        finally:
            await app[LEAVING].leave(runner, options.drain_s, dispatcher.stop)
    await redis.aclose()


async def _read_batch_token(redis: Redis) -> str | None:
    token = await redis.get(streams.BATCH_TOKEN)
    return token.decode() if isinstance(token, bytes) else token


def _instance(worker: Worker | None) -> str:
    name = instance_name("gateway")
    return f"{name}-w{worker.number}" if worker else name


async def _listen_for_operators(admin: Admin, config: ClusterConfig, worker: Worker | None) -> web.AppRunner:
    """The admin port; it is the parent's where there is one, which asks its workers over sockets of their own."""
    if worker:
        return await serve_admin_on_path(admin, worker.admin_path)
    return await serve_admin(admin, config.admin_host, admin_port(config, "gateway"))
