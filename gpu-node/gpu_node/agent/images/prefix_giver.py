"""What this node's engine has cached, for other nodes that ask: a copy waits here like an image, with a ticket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from hmac import compare_digest

from gpu_node.agent.decisions.given_prefixes import COPY_S, HOLD_S, MAX_ASKS
from gpu_node.agent.images.given_images import GivenImages, ImageRefusedError
from gpu_node.agent.telemetry.prefix_metrics import count_given
from gpu_node.engine.process.protocol.prefix_protocol import CopyPrefix, PrefixCopied
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests.requests import ImageTicket


class PrefixGiver:
    """Of one epoch."""

    def __init__(
        self,
        given: GivenImages,
        door: KvDoor,
        send: Callable[[CopyPrefix], Awaitable[None]],
        copy_s: float = COPY_S,
    ) -> None:
        """``send`` tells the engine, or raises `ImageRefusedError`; what it answers comes by `copied`."""
        self._given = given
        self._door = door
        self._send = send
        self._copy_s = copy_s
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[PrefixCopied]] = {}

    @property
    def num_asked(self) -> int:
        """Questions that the engine has not answered."""
        return len(self._asked)

    def check(self, token: str) -> None:
        """`ImageRefusedError` for a token that is not this epoch's."""
        if not compare_digest(self._door.token.encode(), token.encode(errors="surrogateescape")):
            raise ImageRefusedError(403, "it is not this epoch's token")

    async def give(self, ask: PrefixAsk) -> ImageTicket:
        """The ticket of a copy. `ImageRefusedError` where nothing is given: 404 gone, 503 busy."""
        if len(self._asked) >= MAX_ASKS:
            count_given("busy")
            raise ImageRefusedError(503, "too many ask")
        number = next(self._numbers)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        try:
            await self._send(CopyPrefix(number, ask))
            async with asyncio.timeout(self._copy_s):
                copied = await answer
        except TimeoutError:
            count_given("slow")
            raise ImageRefusedError(503, "the engine has not answered in time") from None
        finally:
            del self._asked[number]
        ticket = None
        if copied.file != NO_IMAGE:
            image = Image(ask.request_id, ask.attempt, copied.image, copied.file)
            ticket = self._given.hold(image, HOLD_S).ticket
        if ticket is None:
            count_given("gone")
            raise ImageRefusedError(404, "it is not cached here")
        count_given("given")
        return ticket

    def copied(self, event: PrefixCopied) -> None:
        """The engine has answered. What is not awaited any more is dropped."""
        answer = self._asked.get(event.number)
        if answer is not None and not answer.done():
            answer.set_result(event)
        elif event.file != NO_IMAGE:
            self._given.release(event.image)
