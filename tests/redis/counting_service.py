"""The counting core as a process of its own, for kills that leave nothing running, and for a core that hangs."""

from __future__ import annotations

import asyncio

from shared.bus.bus import connect
from shared.messages.messages import AnyMessage
from shared.messages.requests.requests import Cancel
from shared.service.core import Effect
from shared.service.driver import Driver
from shared.service.log.lease_keeper import HANG_S
from tests.redis.counting import INBOX, SERVICE, CountingCore

HANG = "hang"


class HangingCore(CountingCore):
    """Does not come back from the word ``hang``."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        while message == Cancel(request_id=HANG):
            pass
        return super().handle(message, now)


def serve(url: str, instance: str, hang_s: float = HANG_S) -> None:
    """Run until killed."""
    asyncio.run(_serve(url, instance, hang_s))


async def _serve(url: str, instance: str, hang_s: float) -> None:
    driver = Driver(
        HangingCore,
        connect(url),
        service=SERVICE,
        inbox=INBOX,
        instance=instance,
        reconnect=lambda: connect(url),
        hang_s=hang_s,
    )
    await driver.run(asyncio.Event())
