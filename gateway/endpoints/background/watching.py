"""A response in the background as a stream of events, from any of them on: by its log, at any gateway.

A log that is read has its end, or more may come. Where it ends without one, it was removed meanwhile.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.answers.news_wait import KEEP_ALIVE_S
from gateway.answers.sse import ClientGoneError, SseStream
from gateway.http.context import CLIENT, LEAVING
from gateway.http.flush import give_up
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.kept.background import Background
from gateway.kept.response_log import LogReader, events_after
from gateway.openai.errors import errors, kept_errors
from gateway.tenants.tenant_limit import TenantLimit

POLL_S = 0.1
"""Between two looks at a log that has nothing new."""
MAX_WATCHERS = 1024
"""Streams of one process at a time, each of which asks Redis ten times a second."""
MAX_OF_TENANT = 256


def watchers() -> TenantLimit:
    """Of one process."""
    return TenantLimit(MAX_WATCHERS, MAX_OF_TENANT, kept_errors.too_many_watchers)


async def watch(http: web.Request, background: Background, response_id: str, after: int) -> web.StreamResponse:
    """Events behind the one with the number ``after``, until the last."""
    with http.app[WATCHERS].one(http[CLIENT].tenant):
        stream = SseStream(http)
        try:
            await stream.open()
            await _send(http, stream, background, response_id, after)
            await stream.close([])
        except ClientGoneError:
            give_up(http)
        except errors.ApiError as error:
            await _tell(http, stream, error)
        return stream.response


async def _send(http: web.Request, stream: SseStream, background: Background, response_id: str, after: int) -> None:
    place, log, silence_s = 0, LogReader(), 0.0
    while True:
        try:
            piece, is_open = await background.read(response_id, place)
        except QueueUnavailableError as error:
            raise errors.no_endpoints("the queue cannot be reached") from error
        entries = log.read(piece)
        place += len(piece)
        if events := events_after(entries, after):
            silence_s = 0.0
            await stream.send(*events)
        if any(entry.is_last for entry in entries):
            return
        if piece:
            continue
        if not is_open:
            raise errors.response_not_found("the response was removed")
        if http.app[LEAVING].has_begun:
            raise errors.gateway_stopping()
        if stream.is_lost:
            raise ClientGoneError
        await asyncio.sleep(POLL_S)
        silence_s += POLL_S
        if silence_s >= KEEP_ALIVE_S:
            silence_s = 0.0
            await stream.keep_alive()


async def _tell(http: web.Request, stream: SseStream, error: errors.ApiError) -> None:
    """An error that is none of the response's events: its client may ask for the rest of these again."""
    try:
        await stream.send(error.body())
        await stream.close([])
    except ClientGoneError:
        give_up(http)


WATCHERS = web.AppKey("WATCHERS", TenantLimit)
