"""What every process answers to operators: /healthz, /readyz, /metrics, /status."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from shared.errors import OperatorError
from shared.service.admin.acceptor import ManyAtATime

ADMIN_DRAIN_S = 5.0  # no answer to an operator takes longer


class PortTakenError(OperatorError):
    """Another process listens on the port."""


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Admin:
    """The answers of one process. ``not_ready`` says what is missing, or is empty when the process serves."""

    not_ready: Callable[[], str]
    status: Callable[[], dict[str, object]]
    hangs: Callable[[], str] = _nothing
    """Why the process should be killed, or empty. Asked from another thread where the one that serves may hang."""
    registry: CollectorRegistry = REGISTRY
    """What ``/metrics`` shows."""

    def routes(self) -> list[web.RouteDef]:
        """Routes to add to an aiohttp application."""
        return [*self.health_routes(), web.get("/metrics", self._metrics), web.get("/status", self._status)]

    def health_routes(self) -> list[web.RouteDef]:
        """Those that clients and load balancers may ask as well."""
        return [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]

    async def _healthz(self, _: web.Request) -> web.Response:
        hangs = self.hangs()
        return web.Response(status=503 if hangs else 200, text=f"{hangs or 'ok'}\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = self.not_ready()
        return web.Response(status=503 if missing else 200, text=f"{missing or 'ready'}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self.status())


async def serve_admin(admin: Admin, host: str, port: int, more: Sequence[web.RouteDef] = ()) -> web.AppRunner:
    """Listen; the caller cleans the runner up. ``more``: what other processes ask. `PortTakenError` says what to do."""
    app = web.Application()
    app.add_routes([*admin.routes(), *more])
    return await listen(app, host, port)


async def listen(
    app: web.Application,
    host: str,
    port: int,
    drain_s: float = ADMIN_DRAIN_S,
    make_runner: type[web.AppRunner] = web.AppRunner,
) -> web.AppRunner:
    """Serve an application on a port; `PortTakenError` when it is taken.

    The runner's ``cleanup`` takes no more requests and lets those that run end for ``drain_s``.
    """
    runner = make_runner(app, **_options(drain_s))
    return await _start(runner, f"{host}:{port}", lambda: [web.TCPSite(runner, host, port)])


async def listen_on_sockets(
    app: web.Application,
    sockets: Sequence[socket.socket],
    drain_s: float,
    make_runner: type[web.AppRunner] = web.AppRunner,
) -> web.AppRunner:
    """Serve an application on bound sockets, which other processes may have as well; else as `listen`."""
    runner = make_runner(app, **_options(drain_s))
    where = ", ".join(str(one.getsockname()) for one in sockets)
    return await _start(runner, where, lambda: [ManyAtATime(runner, one) for one in sockets])


async def serve_admin_on_path(admin: Admin, path: str) -> web.AppRunner:
    """As `serve_admin`, for a process of this machine that knows the path of a UNIX socket."""
    app = web.Application()
    app.add_routes(admin.routes())
    runner = web.AppRunner(app, **_options(ADMIN_DRAIN_S))
    return await _start(runner, path, lambda: [web.UnixSite(runner, path)])


def _options(drain_s: float) -> dict[str, Any]:
    # a handler that takes bodies undoes their encoding itself, within bounds and with errors of its own
    return {
        "access_log": None,
        "handler_cancellation": True,
        "shutdown_timeout": drain_s,
        "auto_decompress": False,
    }


async def _start(runner: web.AppRunner, where: str, make_sites: Callable[[], Sequence[web.BaseSite]]) -> web.AppRunner:
    await runner.setup()
    try:
        for site in make_sites():  # which want a runner that is set up
            await site.start()
    except OSError as error:
        await runner.cleanup()
        raise port_taken(where, error) from error
    return runner


def port_taken(where: str, error: OSError) -> PortTakenError:
    """What to do about it."""
    return PortTakenError(f"cannot listen on {where} ({error.strerror}); stop what uses it or configure another port")
