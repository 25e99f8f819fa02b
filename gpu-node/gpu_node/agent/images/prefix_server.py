"""Answers other nodes that ask for what is cached here, over the admin port: with a ticket, as images have it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog
from aiohttp import web

from gpu_node.agent.images.given_images import ImageRefusedError
from gpu_node.agent.images.prefix_giver import PrefixGiver
from shared.messages.prefixes.prefix_ask import PrefixAsk

PREFIX_PATH = "/prefixes/v1"
"""With the version of `PrefixAsk`: another one is not found, and the prompt computed."""

BEARER = "Bearer "

log = structlog.get_logger()

_decoder = msgspec.msgpack.Decoder(PrefixAsk)


class PrefixServer:
    """``giver`` says which cache: None between two epochs, and where nothing is given."""

    def __init__(self, giver: Callable[[], PrefixGiver | None]) -> None:
        self._giver = giver

    def routes(self) -> list[web.RouteDef]:
        """For the application of the admin port."""
        return [web.post(PREFIX_PATH, self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        giver = self._giver()
        try:
            if giver is None:
                raise ImageRefusedError(404, "nothing is given here")
            giver.check(request.headers.get("Authorization", "").removeprefix(BEARER))  # before the body is read
            ask = _decoder.decode(await request.read())
            if not ask.is_sound:
                raise ImageRefusedError(400, "its numbers are no tokens")
            ticket = await giver.give(ask)
        except msgspec.MsgspecError as error:
            return web.Response(status=400, text=f"{error}\n")
        except ImageRefusedError as error:
            if error.status == 403:
                log.warning("prefix refused", reason=str(error), to=request.remote)
            return web.Response(status=error.status, text=f"{error}\n")
        return web.Response(body=msgspec.msgpack.encode(ticket), content_type="application/msgpack")
