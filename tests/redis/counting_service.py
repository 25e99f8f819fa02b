"""The counting core as a process of its own, for kills that leave nothing running."""

from __future__ import annotations

import asyncio

from shared.bus import connect
from shared.driver import Driver
from tests.redis.counting import INBOX, SERVICE, CountingCore


def serve(url: str, instance: str) -> None:
    """Run until killed."""
    asyncio.run(_serve(url, instance))


async def _serve(url: str, instance: str) -> None:
    driver = Driver(CountingCore, connect(url), service=SERVICE, inbox=INBOX, instance=instance)
    await driver.run(asyncio.Event())
