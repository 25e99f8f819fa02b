"""The port of a node on which others fetch images, without the rest of its process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_server import ImageServer
from shared.service.admin.admin import listen

HOST = "127.0.0.1"


@asynccontextmanager
async def image_port(
    given: Callable[[], GivenImages | None], stall_s: float = 5.0, max_served: int = 16
) -> AsyncIterator[str]:
    """Its address, while it is served."""
    server = ImageServer(given, stall_s, max_served)
    app = web.Application()
    app.add_routes(server.routes())
    runner = await listen(app, HOST, 0, drain_s=0.1)
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        server.close()
