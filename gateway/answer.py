"""The two ways to answer an admitted request: as a stream of events, or whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog
from aiohttp import web

from gateway import errors, visit
from gateway.generation import Delta, Failure
from gateway.openai_responses import FinishReason, Usage
from gateway.request import InflightRequest
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
    """For the first one; the request's class says this."""
    keep_alive_s: float = KEEP_ALIVE_S
    """For a later one, before a stream shows that it is alive."""
    max_silence_s: float = MAX_SILENCE_S
    """For a later one, before the answer is given up."""


class Renderer(Protocol):
    """How one endpoint writes an answer."""

    def opening(self) -> list[msgspec.Struct]:
        """Events before the first text."""

    def piece(self, text: str) -> msgspec.Struct:
        """Some text of a stream."""

    def closing(self, text: str, finish_reason: FinishReason) -> list[msgspec.Struct]:
        """The last text of a stream, and why it ended."""

    def counts(self, usage: Usage) -> msgspec.Struct:
        """The event with the token counts."""

    def whole(self, text: str, finish_reason: FinishReason, usage: Usage) -> msgspec.Struct:
        """The answer in one piece."""


async def answer_whole(record: Visit, request: InflightRequest, renderer: Renderer, patience: Patience) -> web.Response:
    """Collect the answer, then send it."""
    delta = await _first(record.timeline, request, patience)
    texts = [delta.text]
    while not delta.is_last:
        delta = await _next(record.timeline, request, patience)
        texts.append(delta.text)
    finish_reason = _finish_reason(delta)
    record.outcome = visit.OK
    body = renderer.whole("".join(texts), finish_reason, _usage(request, record.timeline))
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


async def answer_stream(
    http: web.Request,
    record: Visit,
    request: InflightRequest,
    renderer: Renderer,
    patience: Patience,
    *,
    include_usage: bool,
) -> web.StreamResponse:
    """Send the answer as it comes. Until the first token a failure is a status; after it, an event."""
    delta = await _first(record.timeline, request, patience)
    if delta.is_last:
        _finish_reason(delta)  # a failure that comes first still gets its status
    stream = SseStream(http)
    try:
        await stream.open()
        await stream.send(*renderer.opening())
        while not delta.is_last:
            if delta.text:
                await stream.send(renderer.piece(delta.text))
            delta = await _next(record.timeline, request, patience, stream)
        await stream.send(*renderer.closing(delta.text, _finish_reason(delta)))
        if include_usage:
            await stream.send(renderer.counts(_usage(request, record.timeline)))
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


async def _tell(stream: SseStream, error: errors.ApiError) -> None:
    """An error event and no ``[DONE]``, so that nobody takes the stream for complete."""
    try:
        await stream.send(error.body())
    except ClientGoneError:
        _log.debug("client_left_before_error")


async def _first(timeline: Timeline, request: InflightRequest, patience: Patience) -> Delta:
    """The first token; `ApiError` 429 when it has not come within the class's time to live in the queue."""
    delta = await request.next_delta(patience.queue_ttl_s)
    if delta is None:
        raise errors.ttl_expired(patience.queue_ttl_s)
    timeline.add(delta.num_tokens, asyncio.get_running_loop().time())
    return delta


async def _next(
    timeline: Timeline, request: InflightRequest, patience: Patience, stream: SseStream | None = None
) -> Delta:
    """The next tokens, with comments on the stream while there are none."""
    silence_s = 0.0
    while (delta := await request.next_delta(patience.keep_alive_s)) is None:
        silence_s += patience.keep_alive_s
        if silence_s >= patience.max_silence_s:
            raise errors.no_endpoints(f"no token has come for {silence_s:g} s")
        if stream is not None:
            await stream.keep_alive()
    timeline.add(delta.num_tokens, asyncio.get_running_loop().time())
    return delta


def _finish_reason(last: Delta) -> FinishReason:
    if last.failure is Failure.ENGINE:
        raise errors.ApiError(500, "generation failed on the node", code="generation_failed")
    if last.failure is Failure.LOST:
        raise errors.no_endpoints("the request was lost several times while it ran")
    assert last.finish_reason is not None
    return last.finish_reason


def _usage(request: InflightRequest, timeline: Timeline) -> Usage:
    num_prompt = len(request.job.prompt_token_ids)
    return Usage(num_prompt, timeline.num_tokens, num_prompt + timeline.num_tokens)
