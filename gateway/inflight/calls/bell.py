"""A sign for one waiter, with a time limit that costs nothing while it is kept.

`asyncio.timeout` around `asyncio.Event.wait` makes a timer and a cancellation for every wait, which is more work than
all else that a streamed token needs. Here one timer stays for many waits: it looks at the limit of the last one when it
goes off, and goes on for what is left of that.
"""

from __future__ import annotations

import asyncio


class Bell:
    """Rung from anywhere in the loop's thread, as often as one likes; heard once by its waiter."""

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._limit_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """There is something."""
        self._is_rung = True
        self._wake()

    async def wait(self, timeout_s: float) -> bool:
        """Until it is rung, or has been since the last wait; False if it is not within ``timeout_s``."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._limit_s = loop.time() + timeout_s
            if self._timer is None or self._timer.when() > self._limit_s:
                self._set_timer(loop)
            assert self._waiter is None, "one waits at a time"
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        is_rung, self._is_rung = self._is_rung, False
        return is_rung

    def put_off(self, limit_s: float) -> None:
        """The waiter has until then, a time of the loop."""
        self._limit_s = limit_s

    def close(self) -> None:
        """It has no waiter any more: without this, the timer would hold on to it until it goes off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        self._timer = loop.call_at(self._limit_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None:
            return  # the next wait sets one
        loop = asyncio.get_running_loop()
        if loop.time() < self._limit_s:
            self._set_timer(loop)
        else:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
