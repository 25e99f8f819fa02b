"""Both ways of one epoch's images, as the epoch's loops drive them: what is held for others, what is fetched for us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable

import structlog

from gpu_node.agent.decisions.actions import (
    DiscardImage,
    DropImages,
    FetchPrefix,
    ImageAction,
    ImageBegun,
    ImageFetched,
    ImageHeld,
    PrefixFetched,
    ReadImage,
    Resume,
    StopFetch,
)
from gpu_node.agent.images.given_images import GivenImages
from gpu_node.agent.images.image_fetcher import ImageFetcher
from gpu_node.agent.images.prefix_asker import PrefixAsker
from gpu_node.agent.telemetry.image_metrics import count_failure
from gpu_node.agent.telemetry.spans import RunSpans
from gpu_node.engine.process.protocol.growth_protocol import ImageGrown
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, Image, ImageFile
from shared.messages.requests.requests import Attempt
from shared.service.background.tasks import cancel_all

log = structlog.get_logger()


class ImageTraffic:
    """Fetches run beside the epoch's loops; ``tell`` puts their answers into the line of its events."""

    def __init__(
        self,
        given: GivenImages,
        fetcher: ImageFetcher,
        spans: RunSpans,
        tell: Callable[[ImageFetched | PrefixFetched], Awaitable[None]],
    ) -> None:
        self._asker = PrefixAsker(fetcher)
        self._given = given
        self._fetcher = fetcher
        self._spans = spans
        self._tell = tell
        self._fetches: dict[Attempt, asyncio.Task[None]] = {}

    # --- from here ------------------------------------------------------------------------------------------------

    def hold(self, image: Image) -> ImageHeld:
        """As `GivenImages.hold`."""
        return self._given.hold(image)

    def grow(self, image: ImageGrown) -> ImageBegun | None:
        """As `GivenImages.grow`."""
        return self._given.grow(image)

    def end(self, number: int) -> None:
        """As `GivenImages.end`."""
        self._given.end(number)

    async def released(self) -> list[int]:
        """As `GivenImages.released`."""
        return await self._given.released()

    # --- to here --------------------------------------------------------------------------------------------------

    def do(self, action: ImageAction) -> None:
        """As the agent's core wants it. Nothing is waited for."""
        match action:
            case Resume():
                self._begin(self._fetch(action), ImageFetched(action.payload, NO_IMAGE, 0.0))
            case FetchPrefix():
                self._begin(self._fetch_prefix(action), PrefixFetched(action.payload, NO_IMAGE, 0.0))
            case ReadImage(ticket):
                self._fetcher.read_ahead(ticket)
            case StopFetch(attempts):
                self._stop(attempts)
            case DiscardImage(file):
                self.close_file(file)
            case DropImages(attempts):
                self._given.drop(attempts)

    def _stop(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            task = self._fetches.pop(attempt, None)
            if task is not None:
                task.cancel()

    def _begin(self, fetching: Coroutine[None, None, None], lost: ImageFetched | PrefixFetched) -> None:
        """Fetch; the answer comes whatever happens, unless it is stopped: ``lost`` where nothing comes."""
        attempt = Attempt(lost.payload.request_id, lost.payload.attempt)
        task = asyncio.create_task(self._answered(fetching, lost))
        self._fetches[attempt] = task
        task.add_done_callback(lambda done: self._forget(attempt, done))

    def _forget(self, attempt: Attempt, done: asyncio.Task[None]) -> None:
        if self._fetches.get(attempt) is done:
            del self._fetches[attempt]

    async def _answered(self, fetching: Coroutine[None, None, None], lost: ImageFetched | PrefixFetched) -> None:
        try:
            await fetching
        except Exception:  # a defect, or no thread to be had: its request must not wait for ever
            log.exception("fetch failed", request_id=lost.payload.request_id)
            count_failure("unknown")
            await self._tell(lost)

    async def _fetch(self, resume: Resume) -> None:
        payload, ticket = resume.payload, resume.ticket
        if ticket is None:
            await self._tell(ImageFetched(payload, NO_IMAGE, 0.0))
            return
        with self._spans.fetch(payload, ticket) as span:
            file, seconds = await self._fetcher.fetch(ticket)
            span.set_attribute("treadle.is_lost", file == NO_IMAGE)
        await self._tell_of(file, ImageFetched(payload, file, seconds))

    async def _fetch_prefix(self, wanted: FetchPrefix) -> None:
        with self._spans.fetch_prefix(wanted) as span:
            file, seconds = await self._asker.fetch(wanted)
            span.set_attribute("treadle.kv_bytes", file.num_bytes)
        await self._tell_of(file, PrefixFetched(wanted.payload, file, seconds))

    async def _tell_of(self, file: ImageFile, event: ImageFetched | PrefixFetched) -> None:
        try:
            await self._tell(event)
        except asyncio.CancelledError:
            self._fetcher.close_file(file)
            raise

    def close_file(self, file: ImageFile) -> None:
        """As `ImageFetcher.close_file`."""
        self._fetcher.close_file(file)

    async def close(self) -> None:
        """End all fetches."""
        await cancel_all(list(self._fetches.values()))
        self._fetcher.close()
