"""The routes of files and batches, and what they need of the application."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.batches.calls import BatchCalls
from gateway.batches.service import BatchService
from gateway.batches.token import BatchToken
from gateway.batches.transfers import transfers
from gateway.endpoints.stored import batches, files, message_batches
from gateway.http.context import BATCH_CALLS, BATCHES, MESSAGE_BATCHES, TRANSFERS, GatewayContext
from gateway.openai.errors import batch_errors
from gateway.tenants.keys import Keys
from shared.config.addresses import batches_url

_PATHS = ("files", "batches", "messages/batches")


def batch_routes(app: web.Application, context: GatewayContext, keys: Keys) -> list[web.RouteDef]:
    """Where there is no batch service, they say so."""
    if context.read_batch_token is None:
        return [web.route("*", f"/v1/{what}{{rest:(/.*)?}}", _no_batches) for what in _PATHS]
    token = BatchToken(context.read_batch_token, asyncio.get_running_loop().time)
    app[BATCH_CALLS], app[TRANSFERS] = BatchCalls(token, keys), transfers()
    url = batches_url(context.config)
    app[BATCHES], app[MESSAGE_BATCHES] = BatchService(url, token), BatchService(url, token, "anthropic")
    app.on_cleanup.extend([lambda app: app[BATCHES].close(), lambda app: app[MESSAGE_BATCHES].close()])
    return [
        web.post("/v1/files", files.upload_file),
        web.get("/v1/files", files.list_files),
        web.get("/v1/files/{file}", files.show_file),
        web.delete("/v1/files/{file}", files.remove_file),
        web.get("/v1/files/{file}/content", files.download_file),
        web.post("/v1/batches", batches.make_batch),
        web.get("/v1/batches", batches.list_batches),
        web.get("/v1/batches/{batch}", batches.show_batch),
        web.post("/v1/batches/{batch}/cancel", batches.cancel_batch),
        web.post("/v1/messages/batches", message_batches.make_batch),
        web.get("/v1/messages/batches", message_batches.list_batches),
        web.get("/v1/messages/batches/{batch}", message_batches.show_batch),
        web.delete("/v1/messages/batches/{batch}", message_batches.remove_batch),
        web.post("/v1/messages/batches/{batch}/cancel", message_batches.cancel_batch),
        web.get("/v1/messages/batches/{batch}/results", message_batches.send_results),
    ]


async def _no_batches(_: web.Request) -> web.StreamResponse:
    raise batch_errors.batches_disabled()
