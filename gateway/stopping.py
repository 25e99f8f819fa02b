"""How a gateway stops: what runs may end for ``gateway.drain_s``; what still runs then is told, then cut off."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.dispatcher import Dispatcher
from shared.admin import listen

GOODBYE_S = 2.0  # to write the last event to clients that read; who does not is cut off


async def listen_until_drained(
    app: web.Application, dispatcher: Dispatcher, host: str, port: int, drain_s: float
) -> web.AppRunner:
    """Serve the gateway; the runner's ``cleanup`` takes no more connections, and no answer outlasts ``drain_s``."""

    async def begin(_: web.Application) -> None:
        asyncio.get_running_loop().call_later(drain_s, dispatcher.stop)

    app.on_shutdown.append(begin)
    return await listen(app, host, port, drain_s + GOODBYE_S)
