"""When a file is looked at again that a process keeps to while it runs."""

from __future__ import annotations

import asyncio

from shared.config.reading.file_watch import FileWatch

LOOK_S = 1.0  # a revoked key ends within 5 s: two looks, the reading and the end of its answers take less than that
RETRY_LOOKS = (
    10  # until what could not be used is tried again, unless the file changes: that may take seconds each time
)


async def next_look(file: FileWatch, *, is_retry: bool) -> None:
    """Wait until ``file`` is to be looked at; ``is_retry``: it could not be used as it was."""
    for _ in range(RETRY_LOOKS if is_retry and not file.is_new else 1):
        await asyncio.sleep(LOOK_S)
        if not await asyncio.to_thread(file.is_still):
            return
