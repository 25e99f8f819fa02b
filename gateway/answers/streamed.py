"""An answer as it comes, as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from aiohttp import web

from gateway.answers import call_record
from gateway.answers.answer import Renderer, noted, prompt_usage, usage
from gateway.answers.call_record import Visit
from gateway.answers.event import SseEvent
from gateway.answers.news_wait import NewsWait, first_news, pass_on
from gateway.answers.running_usage import with_usage
from gateway.answers.sse import ClientGoneError, SseStream
from gateway.http.context import ANSWERED
from gateway.http.flush import give_up
from gateway.inflight.calls.call import InflightCall
from gateway.openai.answers.delta import Delta, End
from gateway.openai.errors import errors

_log = structlog.get_logger(__name__)


class StreamedAnswer:
    """Sends the answer to one call. Until something is sent a failure is a status; after that, an event.

    What is sent first is the first token, or the place in the queue where the client wants to hear of it. What comes
    last waits for the end and goes out with it, in one write.
    """

    def __init__(
        self,
        http: web.Request,
        record: Visit,
        call: InflightCall,
        renderer: Renderer,
        patience: NewsWait,
        *,
        include_running_usage: bool,
    ) -> None:
        self._http = http
        self._record = record
        self._call = call
        self._renderer = renderer
        self._patience = patience
        self._include_running_usage = include_running_usage
        self._stream = SseStream(http)
        self._unsent: list[SseEvent] = []

    async def send(self, *, include_queue: bool) -> web.StreamResponse:
        """All of it, or what there is and why there is no more."""
        stream = self._stream
        try:
            await self._begin(include_queue=include_queue)
            while not self._call.is_complete:
                await pass_on(self._call, self._patience, self._take, stream)
                await stream.drain()
            await self._end()
        except ClientGoneError:
            self._record.abandon()
            give_up(self._http)
        except errors.ApiError as error:
            if not stream.is_open:
                raise
            self._record.refuse(error)
            await self._tell(error)
        except Exception:
            if not stream.is_open:
                raise
            # the status is out: the client can only be told by an event, and the log has to be told here
            _log.exception("stream_failed", request_id=self._record.request_id)
            await self._tell(errors.internal())
        return stream.response

    async def _begin(self, *, include_queue: bool) -> None:
        call = self._call
        news = await first_news(call, self._patience, self._stream if include_queue else None)
        deltas = noted(self._record.timeline, call, news, asyncio.get_running_loop().time())
        await self._stream.open()
        prompt = prompt_usage(call)
        opening = self._renderer.opening(prompt)
        if self._include_running_usage:
            opening = with_usage(opening, prompt)
        self._put([*opening, *self._events(deltas)])
        await self._stream.drain()

    async def _end(self) -> None:
        self._unsent.extend(self._renderer.closing(usage(self._call, self._record.timeline)))
        await self._renderer.settle()
        if self._stream.is_lost:
            raise ClientGoneError
        self._record.outcome = call_record.OK  # all goes out now: clients commonly leave at the sight of the last event
        self._http[ANSWERED] = True
        await self._stream.close(self._unsent)

    def _take(self, news: list[Delta] | End, now: float) -> bool:
        self._put(self._events(noted(self._record.timeline, self._call, news, now)))
        return not self._stream.is_full

    def _put(self, events: Sequence[SseEvent]) -> None:
        if self._call.is_complete:
            self._unsent.extend(events)
        else:
            self._stream.put(events)

    def _events(self, deltas: list[Delta]) -> Sequence[SseEvent]:
        if len(deltas) == 1 and not self._include_running_usage:  # a token, mostly
            return self._renderer.events(deltas[0])
        found = [event for delta in deltas for event in self._renderer.events(delta)]
        return with_usage(found, usage(self._call, self._record.timeline)) if self._include_running_usage else found

    async def _tell(self, error: errors.ApiError) -> None:
        """An error event and not the one of a whole answer, so that no client takes the stream for complete."""
        try:
            await self._stream.send(*self._renderer.failed(error))
        except ClientGoneError:
            _log.debug("client_left_before_error")
            give_up(self._http)
