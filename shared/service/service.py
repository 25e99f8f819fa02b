"""From a core to a running process: configuration, logs, Redis, admin port, signals, driver. One call a service."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import TypeVar

import structlog
import uvloop
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from shared.bus.bus import check_reachable, connect
from shared.config.config import ADMIN_PORT_ENV, INSTANCE_ENV, ClusterConfig, ConfigError, load_config
from shared.errors import OperatorError
from shared.messages.nodes.placement import PlacementProblem, Plan
from shared.service.admin.admin import Admin, serve_admin
from shared.service.admin.core_metrics import CoreCollector, Measure
from shared.service.admin.inbox_lag import InboxLag, InboxLagCollector, watch
from shared.service.background.solver import Solver
from shared.service.background.tasks import TaskFailedError, cancel_all
from shared.service.core import Core
from shared.service.driver import Driver
from shared.service.log.durability import Waiting, check_durability
from shared.telemetry.telemetry import configure_logging, configure_tracing

Alongside = Callable[[ClusterConfig, Redis, Callable[[], bool]], Coroutine[None, None, None]]
"""What runs beside a core, for as long: with its configuration, its Redis, and whether this instance is active."""

MAX_PORT = 65_535
DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"

log = structlog.get_logger()

C = TypeVar("C", bound=Core)


def run_service(
    service: str,
    inbox: str,
    make_core: Callable[[ClusterConfig], C],
    measure: Measure[C],
    solve: Callable[[PlacementProblem], Plan] | None = None,
    alongside: Alongside | None = None,
) -> None:
    """Run a service until SIGTERM; one line on stderr and exit status 2 when it cannot start."""
    run_process(lambda config: _serve(config, service, inbox, make_core, measure, solve, alongside))


def run_process(main: Callable[[ClusterConfig], Coroutine[None, None, None]]) -> None:
    """Load the configuration and run ``main``; what an operator must put right becomes one line, status 2.

    Status 1 where a task failed that the process cannot do without: its supervisor starts it again.
    """
    gc.enable()  # `shared.processes.start` has it off until all is imported
    try:
        uvloop.run(main(load_config()))
    except OperatorError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    except TaskFailedError as error:
        raise SystemExit(1) from error


def instance_name(service: str) -> str:
    """Identity of this process for leases: stable over restarts, so that a restart takes its own lease back at once."""
    return os.environ.get(INSTANCE_ENV) or f"{service}@{socket.gethostname()}"


def redis_url(config: ClusterConfig) -> str:
    """Address of the cluster's Redis."""
    return config.redis_url.get_secret_value() if config.redis_url else DEFAULT_REDIS_URL


def admin_port(config: ClusterConfig, process: str) -> int:
    """Where this process answers health and metrics; TREADLE_ADMIN_PORT where each has a network of its own."""
    own = os.environ.get(ADMIN_PORT_ENV)
    if not own:
        return config.admin_port_of(process)
    if not own.isascii() or not own.isdigit() or not 1 <= int(own) <= MAX_PORT:
        raise ConfigError(
            f"{ADMIN_PORT_ENV}={own}: this is no port; set a number from 1 to {MAX_PORT}, or leave it out"
        )
    return int(own)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _serve(
    config: ClusterConfig,
    service: str,
    inbox: str,
    make_core: Callable[[ClusterConfig], C],
    measure: Measure[C],
    solve: Callable[[PlacementProblem], Plan] | None,
    alongside: Alongside | None,
) -> None:
    instance = instance_name(service)
    configure_logging(service, instance)
    configure_tracing(service, instance, config.otlp_endpoint)
    stop = stop_on_signals()
    redis = connect(redis_url(config))
    await check_reachable(redis)
    await check_durability(redis, config.durability)
    waiting = Waiting(config.durability, service) if config.durability.is_on else None
    solver = Solver(solve, redis, inbox) if solve else None
    driver = Driver(
        lambda: make_core(config),
        redis,
        service=service,
        inbox=inbox,
        instance=instance,
        reconnect=lambda: connect(redis_url(config)),
        solver=solver,
        waiting=waiting,
    )
    REGISTRY.register(CoreCollector(lambda: driver.core, measure))
    lag = InboxLag()
    REGISTRY.register(InboxLagCollector(service, lag))
    admin = Admin(
        not_ready=lambda: "" if driver.core or driver.stands_by else "no core: waiting for Redis",
        status=lambda: driver.core.describe() if driver.core else {},
    )
    runner = await serve_admin(admin, config.admin_host, admin_port(config, service))
    work = [watch(redis, service, inbox, lag)]
    if alongside:
        work.append(alongside(config, redis, lambda: driver.core is not None))
    aside = [asyncio.create_task(_aside(one, stop)) for one in work]
    try:
        await driver.run(stop)
        await cancel_all(aside)
        for task in aside:
            if not task.cancelled():
                task.result()  # what it failed with is what the process fails with
    finally:
        log.info("stopping")
        await cancel_all(aside)
        await runner.cleanup()
        if solver:
            await solver.close()
        await redis.aclose()


async def _aside(work: Coroutine[None, None, None], stop: asyncio.Event) -> None:
    """Where it fails, the driver is asked to stop."""
    try:
        await work
    except Exception:
        stop.set()
        raise
