"""The two ways to answer an admitted request: as a stream of events, or whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog
from aiohttp import web

from gateway.answers import call_record
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait, first_news, pass_on, rest
from gateway.answers.running_usage import with_usage
from gateway.answers.sse import ClientGoneError, SseEvent, SseStream
from gateway.http.context import ANSWERED
from gateway.http.flush import give_up
from gateway.inflight.call import InflightCall
from gateway.inflight.timeline import Timeline
from gateway.openai import errors
from gateway.openai.delta import Crashed, Delta, End, Failure, NodeRefusal, Rejection, merged
from gateway.openai.responses import Usage

_log = structlog.get_logger(__name__)


class Renderer(Protocol):
    """How one endpoint writes an answer."""

    def opening(self) -> Sequence[SseEvent]:
        """Events before the first text."""

    def events(self, delta: Delta) -> Sequence[SseEvent]:
        """What is new of a choice of a stream; none where nothing can be shown yet."""

    def counts(self, usage: Usage) -> msgspec.Struct:
        """The event with the token counts."""

    def whole(self, choices: Sequence[Delta], usage: Usage) -> msgspec.Struct:
        """The answer in one piece: all choices, complete, in their order."""


async def answer_whole(record: Visit, call: InflightCall, renderer: Renderer, patience: NewsWait) -> web.Response:
    """Collect the answer, then send it."""
    deltas = _noted(record.timeline, call, await first_news(call, patience))
    while not call.is_complete:
        deltas = [*deltas, *_noted(record.timeline, call, await rest(call, patience))]
    record.outcome = call_record.OK
    body = renderer.whole(merged(deltas), _usage(call, record.timeline))
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def answer_stream(
    http: web.Request,
    record: Visit,
    call: InflightCall,
    renderer: Renderer,
    patience: NewsWait,
    *,
    include_usage: bool,
    include_running_usage: bool = False,
    include_queue: bool,
) -> web.StreamResponse:
    """Send the answer as it comes. Until something is sent a failure is a status; after that, an event.

    What is sent first is the first token, or the place in the queue where the client wants to hear of it.
    """
    stream = SseStream(http)

    def events(deltas: list[Delta]) -> Sequence[SseEvent]:
        if len(deltas) == 1 and not include_running_usage:  # a token, mostly
            return renderer.events(deltas[0])
        found = [event for delta in deltas for event in renderer.events(delta)]
        return with_usage(found, _usage(call, record.timeline)) if include_running_usage else found

    def send(news: list[Delta] | End) -> bool:
        stream.put(*events(_noted(record.timeline, call, news)))
        return not stream.is_full

    try:
        deltas = _noted(record.timeline, call, await first_news(call, patience, stream if include_queue else None))
        await stream.open()
        opening = renderer.opening()
        if include_running_usage:
            opening = with_usage(opening, Usage(call.num_prompt_tokens, 0, call.num_prompt_tokens))
        await stream.send(*opening, *events(deltas))
        while not call.is_complete:
            await pass_on(call, patience, send, stream)
            await stream.drain()
        if include_usage:
            await stream.send(renderer.counts(_usage(call, record.timeline)))
        record.outcome = call_record.OK  # all of it is out: clients commonly leave at the sight of [DONE]
        http[ANSWERED] = True
        await stream.close()
    except ClientGoneError:
        record.abandon()
        give_up(http)
    except errors.ApiError as error:
        if not stream.is_open:
            raise
        record.refuse(error)
        await _tell(http, stream, error)
    except Exception:
        if not stream.is_open:
            raise
        # the status is out: the client can only be told by an event, and the log has to be told here
        _log.exception("stream_failed", request_id=record.request_id)
        await _tell(http, stream, errors.internal())
    return stream.response


async def _tell(http: web.Request, stream: SseStream, error: errors.ApiError) -> None:
    """An error event and no ``[DONE]``, so that nobody takes the stream for complete."""
    try:
        await stream.send(error.body())
    except ClientGoneError:
        _log.debug("client_left_before_error")
        give_up(http)


def _noted(timeline: Timeline, call: InflightCall, news: list[Delta] | End) -> list[Delta]:
    """The deltas, with their time taken down; `ApiError` for an end without an answer."""
    if isinstance(news, list):
        now = asyncio.get_running_loop().time()
        for delta in news:
            timeline.add(delta.num_tokens, now, delta.choice)
        return news
    if isinstance(news, Rejection):
        raise errors.would_be_late(news, call.slo)
    if isinstance(news, NodeRefusal):
        raise errors.refused_by_node(news.why)
    if isinstance(news, Crashed):
        raise errors.engine_crashed(news)
    if news is Failure.ENGINE:
        raise errors.ApiError(500, "generation failed on the node", code="generation_failed")
    if news is Failure.STOPPING:
        raise errors.gateway_stopping()
    if news is Failure.REVOKED:
        raise errors.key_revoked()
    raise errors.no_endpoints("the request was lost several times while it ran")


def _usage(call: InflightCall, timeline: Timeline) -> Usage:
    num_prompt = call.num_prompt_tokens
    return Usage(num_prompt, timeline.num_tokens, num_prompt + timeline.num_tokens)
