"""What a tool sends: a proxy that passes everything on and keeps one request of each kind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from shared.service.admin.admin import listen

_VOLATILE = {"host", "content-length", "x-request-id", "transfer-encoding", "connection"}


@dataclass
class Recorder:
    """Stands before a gateway at ``url``."""

    target: str
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """The first of each tool, method, path and set of fields: ``method``, ``path``, ``headers`` and ``body``."""

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Keep what is new, and answer as the gateway does."""
        data = await request.read()
        self._keep(request, data)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, self.target + request.path_qs, data=data or None, headers=_passed(request)
            ) as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            response.headers.update({name: value for name, value in answer.headers.items() if name in {"Content-Type"}})
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    def _keep(self, request: web.Request, data: bytes) -> None:
        headers = {name.lower(): value for name, value in _passed(request).items() if name.lower() not in _VOLATILE}
        one = {"method": request.method, "path": request.path, "headers": headers, "body": data.decode()}
        if _kind(one) not in map(_kind, self.requests):
            self.requests.append(one)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Recorder]:
        """Listen, on a port that nobody uses."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self.pass_on)
        runner = await listen(app, "127.0.0.1", 0)
        try:
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}"
            yield self
        finally:
            await runner.cleanup()


def _passed(request: web.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in {"host", "content-length"}}


def _kind(request: dict[str, Any]) -> tuple[str, str, str, tuple[str, ...]]:
    fields = sorted(json.loads(request["body"])) if request["body"] else []
    return request["headers"].get("user-agent", ""), request["method"], request["path"], tuple(fields)
