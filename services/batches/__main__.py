"""The batch service's process: its folder, its door beside the admin port's answers, its runner."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import structlog

from services.batches.core import BatchCore
from services.batches.door import BatchDoor
from services.batches.keeping import BatchKeeper
from services.batches.lines import InputLines, check_lines
from services.batches.metrics import BatchMetrics
from services.batches.runner import BatchRunner
from services.batches.sender import BatchSender
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from services.batches.store.folder import BatchFolder
from services.batches.token import keep_told, own_token
from shared.bus.bus import connect
from shared.config.addresses import gateway_of_batches
from shared.config.config import BATCHES, ClusterConfig
from shared.config.queue import weight_of
from shared.service.admin import Admin, listen
from shared.service.service import admin_port, instance_name, redis_url, run_process, stop_on_signals
from shared.service.tasks import Supervised
from shared.telemetry.telemetry import configure_logging, configure_tracing

log = structlog.get_logger()


async def _run(config: ClusterConfig) -> None:
    instance = instance_name(BATCHES)
    configure_logging(BATCHES, instance)
    configure_tracing(BATCHES, instance, config.otlp_endpoint)
    stop, options = stop_on_signals(), config.batches
    folder = BatchFolder(config.batch_folder)
    folder.claim()
    files, batches = FileStore(folder), BatchStore(folder)
    files.load()
    batches.load()
    token = own_token(folder.root)
    redis = connect(redis_url(config))
    metrics = BatchMetrics()
    sender = BatchSender(gateway_of_batches(config), token, options.max_inflight)
    core = BatchCore(options.max_inflight, partial(weight_of, config.tenants))
    check = partial(_check, options.max_requests, config.gateway.max_body_bytes)
    runner = BatchRunner(core, files, batches, sender, metrics, check=check, keep_s=options.keep_s, clock=time.time)
    keeper = BatchKeeper(files, batches, metrics, options.keep_s, time.time)
    door = BatchDoor(options, folder, files, batches, runner, token, time.time).app()
    tasks = Supervised()
    admin = Admin(
        not_ready=lambda: tasks.failed,
        status=lambda: {"open": [one.id for one in core.batches], "inflight": core.num_out},
    )
    door.add_routes(admin.routes())
    try:
        async with tasks.until_left(stop.set):
            listener = await listen(door, config.admin_host, admin_port(config, BATCHES))
            tasks.start("the batches", runner.run())
            tasks.start("the keeper of files", keeper.run())
            tasks.start("the token", keep_told(redis, token))
            log.info("ready", folder=str(folder.root), gateways=gateway_of_batches(config))
            await stop.wait()
            log.info("stopping")
            await listener.cleanup()
    finally:
        await sender.close()
        await redis.aclose()
        folder.release()


def _check(max_requests: int, max_line_bytes: int, path: Path, endpoint: str) -> InputLines:
    with path.open("rb") as file:
        return check_lines(file, endpoint, max_requests, max_line_bytes)


if __name__ == "__main__":
    run_process(_run)
