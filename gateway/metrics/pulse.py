"""Whether the event loop turns, for another thread to ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from shared.service.background.tasks import cancel_all

PULSE_S = 0.5
# A crowd, or a huge body, holds the loop up for seconds. What does not turn for this long will not turn again.
HANG_S = 15.0


class Pulse:
    """When a loop turned last. `hangs` may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned_s = clock()

    def turn(self) -> None:
        """The loop turns now."""
        self._turned_s = self._clock()

    def hangs(self) -> str:
        """Why the process should be killed; empty while its loop turns, or may only be busy."""
        silence_s = self._clock() - self._turned_s
        return f"the event loop has not turned for {silence_s:.0f} s" if silence_s > HANG_S else ""

    async def beating(self, _: web.Application) -> AsyncIterator[None]:
        """For `cleanup_ctx` of an application: beats from its start to its end."""
        self.turn()
        beat = asyncio.create_task(self._beat(), name="pulse")
        yield
        await cancel_all([beat])

    async def _beat(self) -> None:
        while True:
            self.turn()
            await asyncio.sleep(PULSE_S)
