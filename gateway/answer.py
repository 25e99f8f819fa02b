"""The two ways to answer an admitted request: as a stream of events, or whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog
from aiohttp import web

from gateway import errors, visit
from gateway.call import InflightCall
from gateway.delta import Delta, Failure, Refusal, merged
from gateway.openai_responses import Usage
from gateway.sse import ClientGoneError, SseStream
from gateway.timeline import Timeline
from gateway.visit import Visit

KEEP_ALIVE_S = 15.0  # proxies commonly close a connection after 30 s or 60 s of silence
MAX_SILENCE_S = 600.0  # an answer that was begun and then stands still this long is given up

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Patience:
    """How long an answer may wait for its next tokens."""

    queue_ttl_s: float
    """For the first one of each prompt; the request's class says this."""
    keep_alive_s: float = KEEP_ALIVE_S
    """For a later one, before a stream shows that it is alive."""
    max_silence_s: float = MAX_SILENCE_S
    """For a later one of any prompt, before the answer is given up."""


class Renderer(Protocol):
    """How one endpoint writes an answer."""

    def opening(self) -> list[msgspec.Struct]:
        """Events before the first text."""

    def events(self, delta: Delta) -> list[msgspec.Struct]:
        """What is new of a choice of a stream; none where nothing can be shown yet."""

    def counts(self, usage: Usage) -> msgspec.Struct:
        """The event with the token counts."""

    def whole(self, choices: Sequence[Delta], usage: Usage) -> msgspec.Struct:
        """The answer in one piece: all choices, complete, in their order."""


async def answer_whole(record: Visit, call: InflightCall, renderer: Renderer, patience: Patience) -> web.Response:
    """Collect the answer, then send it."""
    deltas = await _first(record.timeline, call, patience)
    while not call.is_complete:
        deltas += await _next(record.timeline, call, patience)
    record.outcome = visit.OK
    body = renderer.whole(merged(deltas), _usage(call, record.timeline))
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def answer_stream(
    http: web.Request,
    record: Visit,
    call: InflightCall,
    renderer: Renderer,
    patience: Patience,
    *,
    include_usage: bool,
) -> web.StreamResponse:
    """Send the answer as it comes. Until the first token a failure is a status; after it, an event."""
    deltas = await _first(record.timeline, call, patience)
    stream = SseStream(http)
    try:
        await stream.open()
        await stream.send(*renderer.opening(), *_events(renderer, deltas))
        while not call.is_complete:
            deltas = await _next(record.timeline, call, patience, stream)
            await stream.send(*_events(renderer, deltas))
        if include_usage:
            await stream.send(renderer.counts(_usage(call, record.timeline)))
        record.outcome = visit.OK  # all of it is out: clients commonly leave at the sight of [DONE]
        await stream.close()
    except ClientGoneError:
        record.abandon()
    except errors.ApiError as error:
        record.refuse(error)
        await _tell(stream, error)
    except Exception:  # the status is out: the client can only be told by an event, and the log has to be told here
        _log.exception("stream_failed", request_id=record.request_id)
        await _tell(stream, errors.internal())
    return stream.response


def _events(renderer: Renderer, deltas: list[Delta]) -> list[msgspec.Struct]:
    return [event for delta in deltas for event in renderer.events(delta)]


async def _tell(stream: SseStream, error: errors.ApiError) -> None:
    """An error event and no ``[DONE]``, so that nobody takes the stream for complete."""
    try:
        await stream.send(error.body())
    except ClientGoneError:
        _log.debug("client_left_before_error")


async def _first(timeline: Timeline, call: InflightCall, patience: Patience) -> list[Delta]:
    """The first tokens; `ApiError` 429 when they have not come within the class's time to live in the queue."""
    news = await call.next_deltas(patience.queue_ttl_s)
    if news is None:
        raise errors.ttl_expired(patience.queue_ttl_s)
    return _noted(timeline, news)


async def _next(
    timeline: Timeline, call: InflightCall, patience: Patience, stream: SseStream | None = None
) -> list[Delta]:
    """The next tokens, with comments on the stream while there are none."""
    silence_s = 0.0
    while (news := await call.next_deltas(patience.keep_alive_s)) is None:
        silence_s += patience.keep_alive_s
        # of several prompts, some may still wait in the queue when others are through
        if silence_s >= (patience.max_silence_s if call.has_begun else patience.queue_ttl_s):
            raise errors.no_endpoints(f"no token has come for {silence_s:g} s")
        if stream is not None:
            await stream.keep_alive()
    return _noted(timeline, news)


def _noted(timeline: Timeline, news: list[Delta] | Failure | Refusal) -> list[Delta]:
    """The deltas, with their time taken down; `ApiError` for a failure."""
    if isinstance(news, Refusal):
        raise errors.refused_by_node(news.why)
    if news is Failure.ENGINE:
        raise errors.ApiError(500, "generation failed on the node", code="generation_failed")
    if news is Failure.LOST:
        raise errors.no_endpoints("the request was lost several times while it ran")
    now = asyncio.get_running_loop().time()
    for delta in news:
        timeline.add(delta.num_tokens, now, delta.choice)
    return news


def _usage(call: InflightCall, timeline: Timeline) -> Usage:
    num_prompt = call.num_prompt_tokens
    return Usage(num_prompt, timeline.num_tokens, num_prompt + timeline.num_tokens)
