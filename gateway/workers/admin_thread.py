"""A listener in a thread of its own, with an event loop of its own: it answers while the main loop is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class _Aside:
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event


@asynccontextmanager
async def served_aside(listen: Callable[[], Awaitable[web.AppRunner]]) -> AsyncIterator[None]:
    """Inside, what ``listen`` has begun is served by another thread; raises what ``listen`` raises there."""
    listening: Future[_Aside] = Future()
    # a daemon: nothing that an operator asks keeps a process from ending
    thread = threading.Thread(target=lambda: asyncio.run(_serve(listen, listening)), name="admin", daemon=True)
    thread.start()
    aside = await asyncio.wrap_future(listening)
    try:
        yield
    finally:
        aside.loop.call_soon_threadsafe(aside.stop.set)
        await asyncio.to_thread(thread.join)


async def _serve(listen: Callable[[], Awaitable[web.AppRunner]], listening: Future[_Aside]) -> None:
    try:
        runner = await listen()
    except Exception as error:
        listening.set_exception(error)
        return
    stop = asyncio.Event()
    listening.set_result(_Aside(asyncio.get_running_loop(), stop))
    await stop.wait()
    await runner.cleanup()
