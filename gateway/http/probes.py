"""``GET /health`` and ``GET /version``, by the names and in the shapes in which load generators ask vLLM."""

from __future__ import annotations

from aiohttp import web

from gateway.http.context import CONTEXT
from shared import __version__


async def health(request: web.Request) -> web.Response:
    """200 and no body where a request can be submitted now, else 503; ``/readyz`` says why."""
    return web.Response(status=503 if request.app[CONTEXT].not_ready() else 200)


async def version(_: web.Request) -> web.Response:
    """Treadle's own."""
    return web.json_response({"version": __version__})
