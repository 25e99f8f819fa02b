"""The gateway's process: models, Redis, the application, one call."""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
import time

import structlog
from prometheus_client import REGISTRY

from gateway.app import build_app
from gateway.clients_port import ClientsRunner
from gateway.context import GatewayContext
from gateway.dispatcher import Dispatcher
from gateway.models import load_models
from gateway.open_files import allow_connections
from gateway.redis_queue import RedisQueue
from shared.admin import listen
from shared.bus import check_reachable, connect
from shared.config import ClusterConfig
from shared.durability import Waiting, check_durability
from shared.service import instance_name, redis_url, run_process, stop_on_signals
from shared.telemetry import configure_logging, configure_tracing

log = structlog.get_logger()


# A thread that computes gives way to the event loop after this many seconds, and the loop has to ask at every turn.
SWITCH_S = 0.0005


async def serve(config: ClusterConfig) -> None:
    """Serve the REST front until SIGTERM."""
    instance = instance_name("gateway")
    gateway_id = f"{instance}-{secrets.token_hex(4)}"  # of this life: an earlier one's clients are gone
    configure_logging("gateway", gateway_id)
    configure_tracing("gateway", gateway_id, config.otlp_endpoint)
    stop = stop_on_signals()
    sys.setswitchinterval(SWITCH_S)
    allow_connections(config.gateway.most_connections)
    redis = connect(redis_url(config))
    await check_reachable(redis)
    await check_durability(redis, config.durability)
    waiting = Waiting(config.durability, "gateway") if config.durability.is_on else None
    started = time.monotonic()
    models = await asyncio.to_thread(load_models, config)
    log.info("models ready", models=list(models), seconds=round(time.monotonic() - started, 2))
    queue = RedisQueue(redis, gateway_id, waiting)
    dispatcher = Dispatcher(queue, gateway_id)
    context = GatewayContext(
        config=config,
        models=models,
        dispatcher=dispatcher,
        not_ready=lambda: queue.not_ready,
        redis_health=lambda: queue.health,
        registry=REGISTRY,
    )
    options = config.gateway
    gc.collect()
    gc.freeze()  # vocabularies are there to stay: looking through them again and again holds up the event loop
    async with queue.serving(dispatcher, stop.set):
        runner = await listen(build_app(context), options.host, options.port, options.drain_s, ClientsRunner)
        log.info("listening", host=options.host, port=options.port, drain_s=options.drain_s)
        try:
            await stop.wait()
        finally:
            await runner.cleanup()
    await redis.aclose()


if __name__ == "__main__":
    run_process(serve)
