"""How a gateway leaves its clients: those with a kept connection are told to take another one before it is closed."""

from __future__ import annotations

import asyncio

from aiohttp import web

LEAVE_S = 1.0  # a client that sends a request at least this often is told in its answer, and loses none
POLL_S = 0.02


class Leaving:
    """Whether it has begun; answers from then on end their connections."""

    def __init__(self) -> None:
        self.has_begun = False

    async def tell(self, _: web.Request, response: web.StreamResponse) -> None:
        """For `on_response_prepare`: the next request of this client comes over another connection."""
        if self.has_begun:
            response.force_close()
            response.headers["Connection"] = "close"

    async def leave(self, runner: web.AppRunner) -> None:
        """Take no more connections, tell those that there are, let requests end for as long as the runner does."""
        for site in list(runner.sites):
            await site.stop()
        self.has_begun = True
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + LEAVE_S
        while runner.server is not None and runner.server.connections and loop.time() < deadline_s:  # noqa: ASYNC110 - no event
            await asyncio.sleep(POLL_S)
        await runner.cleanup()
