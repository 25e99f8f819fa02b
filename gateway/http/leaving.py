"""How a gateway leaves its clients: what runs may end, and clients with kept connections are told to take others.

A connection that is closed while its client sends the next request looks like a failure. So none is closed at once: for
`LEAVE_S` behind the last answer each further request is answered, too, with ``Connection: close``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

LEAVE_S = 1.0  # a client that sends its next request within this time is told, and loses none
GOODBYE_S = 2.0  # to write the last event to clients that read; one that does not is cut off
CUT_S = 1.0  # for the ends of those that are cut off
POLL_S = 0.02


class Leaving:
    """Whether it has begun, and how many requests are being answered."""

    def __init__(self, goodbye_s: float = GOODBYE_S) -> None:
        self._goodbye_s = goodbye_s
        self.has_begun = False
        self.num_answering = 0

    def middleware(self) -> Middleware:
        """Counts what is being answered."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.num_answering += 1
            try:
                return await handler(request)
            finally:
                self.num_answering -= 1

        return count

    async def tell(self, _: web.Request, response: web.StreamResponse) -> None:
        """For `on_response_prepare`: the next request of this client comes over another connection."""
        if self.has_begun:
            response.force_close()
            response.headers["Connection"] = "close"

    async def leave(self, runner: web.AppRunner, drain_s: float, stop: Callable[[], None]) -> None:
        """Take no more connections, and let those that there are end.

        ``stop`` ends all answers that take longer than ``drain_s``: their clients are told. One that does not read that
        within `GOODBYE_S` is cut off.
        """
        for site in list(runner.sites):
            await site.stop()
        self.has_begun = True
        clock = asyncio.get_running_loop().time
        last_s = began_s = clock()
        quiet_s, is_over = 0.0, False
        while runner.server is not None and runner.server.connections:
            now = clock()
            # a process that did not run for a while has yet to read what its clients sent meanwhile
            quiet_s = 0.0 if self.num_answering else quiet_s + min(now - last_s, 2 * POLL_S)
            last_s = now
            if now - began_s >= drain_s and not is_over:
                is_over = True
                stop()
            if is_over and (not self.num_answering or now - began_s >= drain_s + self._goodbye_s):
                break
            if quiet_s >= LEAVE_S:
                break
            await asyncio.sleep(POLL_S)
        await runner.cleanup()
