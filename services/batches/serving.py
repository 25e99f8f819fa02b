"""The batch service, put together: its folder, its door beside the admin port's answers, its runner."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import structlog
from prometheus_client import REGISTRY, CollectorRegistry
from redis.asyncio import Redis

from services.batches.decisions.core import BatchCore
from services.batches.door import BatchDoor
from services.batches.intake.lines import InputLines, check_lines
from services.batches.keeping import BatchKeeper
from services.batches.metrics import BatchMetrics
from services.batches.sending.runner import BatchRunner
from services.batches.sending.sender import BatchSender
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from services.batches.store.folder import BatchFolder
from services.batches.token import keep_told, own_token, tell
from shared.config.addresses import gateway_of_batches
from shared.config.config import BATCHES, ClusterConfig
from shared.config.services.queue import weight_of
from shared.service.admin.admin import Admin, listen
from shared.service.background.tasks import Supervised
from shared.service.service import admin_port

log = structlog.get_logger()


@asynccontextmanager
async def serving(
    config: ClusterConfig,
    redis: Redis,
    on_failure: Callable[[], None],
    *,
    registry: CollectorRegistry = REGISTRY,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[None]:
    """Inside, the service serves; ``on_failure`` has its process leave, as `Supervised.until_left` says.

    `OperatorError` where it cannot: the folder is held by another, or the port is taken.
    """
    options, gateways = config.batches, gateway_of_batches(config)
    folder = BatchFolder(config.batch_folder)
    folder.claim()
    files, batches, metrics = FileStore(folder), BatchStore(folder), BatchMetrics(registry)
    files.load()
    batches.load()
    token = own_token(folder.root)
    sender = BatchSender(gateways, token, options.max_inflight)
    core = BatchCore(options.max_inflight, partial(weight_of, config.tenants))
    check = partial(_check, options.max_requests, config.gateway.max_body_bytes)
    runner = BatchRunner(core, files, batches, sender, metrics, check=check, keep_s=options.keep_s, clock=clock)
    keeper = BatchKeeper(files, batches, metrics, options.keep_s, clock)
    app = BatchDoor(options, config.gateway.max_body_bytes, folder, files, batches, runner, token, clock).app()
    tasks = Supervised()
    admin = Admin(
        not_ready=lambda: tasks.failed,
        status=lambda: {"open": [one.id for one in core.batches], "inflight": core.num_out},
        registry=registry,
    )
    app.add_routes(admin.routes())
    try:
        async with tasks.until_left(on_failure):
            await tell(redis, token)
            listener = await listen(app, config.admin_host, admin_port(config, BATCHES))
            tasks.start("the batches", runner.run())
            tasks.start("the keeper of files", keeper.run())
            tasks.start("the secret of the batch service", keep_told(redis, token))
            log.info("ready", folder=str(folder.root), gateways=gateways)
            try:
                yield
            finally:
                log.info("stopping")
                await listener.cleanup()
    finally:
        await sender.close()
        folder.release()


def _check(max_requests: int, max_line_bytes: int, path: Path, endpoint: str) -> InputLines:
    with path.open("rb") as file:
        return check_lines(file, endpoint, max_requests, max_line_bytes)
