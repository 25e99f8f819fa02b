"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

CANCEL_AGAIN_S = 0.05


async def cancel_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel until it takes, and wait for the end; what the tasks raised is dropped.

    One `cancel` is not enough: a cancellation that meets redis-py in a blocking read is sometimes lost there (seen with
    8.1 on Python 3.11, about one in fifteen), and a plain cancel-and-gather would then wait for ever.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not warn about it
