"""Asks the node that has the beginning of a prompt for it, and fetches the copy: within the time that it is worth."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import structlog

from gpu_node.agent.decisions.actions import FetchPrefix
from gpu_node.agent.decisions.given_prefixes import COPY_S
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.agent.images.prefix_server import BEARER, PREFIX_PATH
from gpu_node.agent.telemetry.prefix_metrics import count_fetch
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, ImageFile
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.requests import ImageTicket

MAX_ASK_TOKENS = 1 << 17
"""Of a question, whose body may take a megabyte: five bytes each."""

MAX_ANSWER_BYTES = 4_096
"""A ticket takes some hundred."""

ANSWER_S = COPY_S + 1.0
"""For the giver's answer, which says within `COPY_S` that its engine has none. One that hangs says nothing, and a long
prompt, whose fetch has as long as computing it would take, would wait for all of that."""

_REASONS = {403: "refused", 404: "gone", 503: "busy"}

log = structlog.get_logger()

_decoder = msgspec.msgpack.Decoder(ImageTicket)


class AskError(Exception):
    """Nothing comes; ``reason`` is one word, for metrics."""

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


class PrefixAsker:
    """Of one epoch. Images and prefixes share the fetcher's turns and its room."""

    def __init__(self, fetcher: ImageFetcher, answer_s: float = ANSWER_S) -> None:
        self._fetcher = fetcher
        self._answer_s = answer_s

    async def fetch(self, wanted: FetchPrefix) -> tuple[ImageFile, float]:
        """The prefix and the seconds that it took on its way; `NO_IMAGE` where it does not come, which is counted."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout(wanted.source.within_s):
                ticket = await self._answer(wanted)
                file, seconds = await self._fetcher.fetch(ticket)
            if file == NO_IMAGE:
                raise AskError("lost")
        except TimeoutError:
            error = AskError("late", f"it has taken longer than {wanted.source.within_s:.3g} s")
        except AskError as failure:
            error = failure
        else:
            count_fetch("fetched", file.num_bytes, loop.time() - began_s)
            return file, seconds
        count_fetch(error.reason)
        log.info("prefix not fetched", node=wanted.source.node, reason=error.reason, error=str(error))
        return NO_IMAGE, 0.0

    async def _answer(self, wanted: FetchPrefix) -> ImageTicket:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._ask(wanted)
        except TimeoutError:
            raise AskError("late", f"it has not answered in {self._answer_s:.3g} s") from None

    async def _ask(self, wanted: FetchPrefix) -> ImageTicket:
        payload, source = wanted.payload, wanted.source
        ask = PrefixAsk(
            request_id=payload.request_id,
            attempt=payload.attempt,
            model=payload.model,
            adapter=payload.adapter,
            kv_format=source.kv_format,
            token_ids=payload.prompt_token_ids[:MAX_ASK_TOKENS],  # it may have more than the names that it was known by
            from_token=wanted.from_token,
            partition=payload.partition,
        )
        headers = {"Authorization": BEARER + source.door.token}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(source.door.url + PREFIX_PATH, data=msgspec.msgpack.encode(ask)) as response,
            ):
                body = await response.content.read(MAX_ANSWER_BYTES)
                if response.status != 200:
                    raise AskError(_REASONS.get(response.status, "refused"), body.decode(errors="replace").strip())
                return _decoder.decode(body)
        except (aiohttp.ClientError, OSError) as error:
            raise AskError("unreachable", f"{type(error).__name__}: {error}") from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise AskError("refused", f"its answer does not decode: {error}") from error
