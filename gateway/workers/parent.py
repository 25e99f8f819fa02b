"""The parent of a gateway's workers: it owns the port and the admin port, and keeps N processes running."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from aiohttp import web
from prometheus_client import REGISTRY

from gateway.http.leaving import CUT_S, GOODBYE_S
from gateway.workers.parent_admin import ParentAdmin
from gateway.workers.parent_metrics import WorkersCollector
from gateway.workers.sockets import open_sockets
from gateway.workers.worker import Worker
from gateway.workers.worker_client import WorkerClient
from gateway.workers.worker_pool import Kill, StartWorker, Stop, WorkerPool
from shared.config.config import ClusterConfig
from shared.errors import OperatorError
from shared.service.admin.admin import listen
from shared.service.background.tasks import cancel_all
from shared.service.service import admin_port, instance_name, stop_on_signals
from shared.telemetry.telemetry import configure_logging

LOOK_S = 0.25  # between two questions to each worker: how soon one that has become ready, or hangs, is known

log = structlog.get_logger()


class WorkersFailedError(OperatorError):
    """No worker can start."""


@dataclass(frozen=True)
class _Process:
    """One life, and the line to it."""

    process: asyncio.subprocess.Process
    client: WorkerClient
    ended: asyncio.Task[None]


async def supervise(config: ClusterConfig) -> None:
    """Keep the workers running until SIGTERM; on SIGHUP replace them one by one."""
    configure_logging("gateway", instance_name("gateway"))
    stop = stop_on_signals()
    with ExitStack() as stack:
        sockets = open_sockets(config.gateway.host, config.gateway.port)
        stack.callback(_close, sockets)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-gateway-"))  # of this user alone
        parent = Parent(config, sockets, Path(folder))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, parent.replace_all)
        app = web.Application()
        app.add_routes(ParentAdmin(parent.pool, lambda: parent.clients).routes())
        REGISTRY.register(WorkersCollector(parent.pool))
        runner = await listen(app, config.admin_host, admin_port(config, "gateway"))
        try:
            await parent.run(stop)
        finally:
            await runner.cleanup()
            await parent.aclose()
    if parent.pool.failure:
        raise WorkersFailedError(f"the gateway cannot start: {parent.pool.failure}")


class Parent:
    """Does what `WorkerPool` decides."""

    def __init__(self, config: ClusterConfig, sockets: list[socket.socket], folder: Path) -> None:
        self._num_workers = config.gateway.workers
        self.pool = WorkerPool(self._num_workers, config.gateway.drain_s + GOODBYE_S + CUT_S)
        self._sockets = sockets
        self._folder = folder
        self._processes: dict[int, _Process] = {}
        self._changed = asyncio.Event()
        # never written to: its end tells workers that this process has ended
        self._alive, self._alive_end = os.pipe()

    @property
    def clients(self) -> dict[int, WorkerClient]:
        """A line to each process that runs, by its life."""
        return {number: one.client for number, one in self._processes.items()}

    def replace_all(self) -> None:
        """One by one."""
        log.info("replacing all workers", num_workers=self._num_workers)
        self.pool.replace_all()
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until all have ended after ``stop``, or none can start."""
        stopping = asyncio.create_task(self._stop(stop))
        looks = asyncio.create_task(self._look())
        abandoned = ""
        try:
            while not self.pool.is_over:
                self._changed.clear()
                await self._act()
                if stop.is_set():
                    _close(self._sockets)  # as the workers do: connections are refused now, not left waiting
                if self.pool.abandoned != abandoned and (abandoned := self.pool.abandoned):
                    log.error("workers not replaced", reason=abandoned)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), LOOK_S)  # what is due by time alone is late by this
                if looks.done():
                    looks.result()
        finally:
            await cancel_all([stopping, looks])

    async def aclose(self) -> None:
        """Nothing is left of it, whatever state it is in."""
        for one in self._processes.values():
            with suppress(ProcessLookupError):
                one.process.kill()
        await asyncio.gather(*(one.ended for one in self._processes.values()))
        for descriptor in (self._alive, self._alive_end):
            os.close(descriptor)

    async def _stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.pool.stop()
        self._changed.set()

    async def _act(self) -> None:
        for action in self.pool.due(_now()):
            match action:
                case StartWorker(worker, life):
                    await self._start(worker, life)
                case Stop(life):
                    log.info("worker is asked to end", life=life)
                    self._signal(life, signal.SIGTERM)
                case Kill(life, reason):
                    log.error("worker is killed", life=life, reason=reason)
                    self._signal(life, signal.SIGKILL)

    async def _start(self, number: int, life: int) -> None:
        worker = Worker(
            number=number,
            num_workers=self._num_workers,
            sockets=tuple(one.fileno() for one in self._sockets),
            admin_path=str(self._folder / f"{life}.sock"),
            parent=self._alive,
        )
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "gateway", *worker.arguments()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(*worker.sockets, worker.parent),
            )
        except OSError as error:  # no memory, or too many processes
            log.exception("worker cannot be started", worker=number, life=life)
            self.pool.ended(life, _now(), f"could not be started ({error.strerror})")
            return
        log.info("worker is started", worker=number, life=life, pid=process.pid)
        client = WorkerClient(worker.admin_path)
        self._processes[life] = _Process(process, client, asyncio.create_task(self._reap(number, life, process)))

    def _signal(self, life: int, number: signal.Signals) -> None:
        if (one := self._processes.get(life)) is not None:
            with suppress(ProcessLookupError):  # it was quicker
                one.process.send_signal(number)

    async def _reap(self, worker: int, life: int, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        say = log.info if self.pool.lives[life].is_leaving else log.warning
        say("worker has ended", worker=worker, life=life, pid=process.pid, how=how)
        gone = self._processes.pop(life)
        self.pool.ended(life, _now(), how)
        self._changed.set()
        await gone.client.aclose()

    async def _look(self) -> None:
        """Ask all how they are, again and again."""
        while True:
            await asyncio.gather(*(self._ask(life, client) for life, client in self.clients.items()))
            await asyncio.sleep(LOOK_S)

    async def _ask(self, life: int, client: WorkerClient) -> None:
        if (health := await client.ask("/healthz")) is None or (readiness := await client.ask("/readyz")) is None:
            return
        before = self.pool.num_ready
        self.pool.heard(
            life,
            _now(),
            is_ready=readiness[0] == web.HTTPOk.status_code,
            hangs="" if health[0] == web.HTTPOk.status_code else health[1].strip(),
        )
        if self.pool.num_ready != before:
            self._changed.set()


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
