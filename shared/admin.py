"""What every process answers to operators: /healthz, /readyz, /metrics, /status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.errors import OperatorError

ADMIN_DRAIN_S = 5.0  # no answer to an operator takes longer


class PortTakenError(OperatorError):
    """Somebody else listens on the port."""


@dataclass(frozen=True, slots=True)
class Admin:
    """The answers of one process. ``not_ready`` says what is missing, or is empty when the process serves."""

    not_ready: Callable[[], str]
    status: Callable[[], dict[str, object]]

    def routes(self) -> list[web.RouteDef]:
        """Routes to add to an aiohttp application."""
        return [
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._metrics),
            web.get("/status", self._status),
        ]

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = self.not_ready()
        return web.Response(status=503 if missing else 200, text=f"{missing or 'ready'}\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self.status())


async def serve_admin(admin: Admin, host: str, port: int) -> web.AppRunner:
    """Listen; the caller cleans the runner up. `PortTakenError` says which port and what to do."""
    app = web.Application()
    app.add_routes(admin.routes())
    return await listen(app, host, port)


async def listen(app: web.Application, host: str, port: int, drain_s: float = ADMIN_DRAIN_S) -> web.AppRunner:
    """Serve an application on a port; `PortTakenError` when it is taken.

    The runner's ``cleanup`` takes no more requests and lets those that run end for ``drain_s``.
    """
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s, auto_decompress=False
    )  # whoever takes bodies undoes their encoding himself, within bounds and with errors of his own
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTakenError(
            f"cannot listen on {host}:{port} ({error.strerror}); stop what uses it or configure another port"
        ) from error
    return runner
