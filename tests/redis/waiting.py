"""Waiting for what another process or task does: asked often, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

POLL_S = 0.005
PATIENCE_S = 20.0


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = PATIENCE_S) -> None:
    """Return once ``condition`` holds; TimeoutError names it when it does not in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"{getattr(condition, '__qualname__', condition)} does not hold after {timeout_s} s")
        await asyncio.sleep(POLL_S)


async def lasting(task: asyncio.Task[None], seconds: float) -> None:
    """Let a task run this long; should it end before, its outcome is ours."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    if done:
        task.result()
        raise AssertionError("the task ended by itself")
