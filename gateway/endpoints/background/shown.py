"""``/v1/responses/{id}``: answers that are kept, and responses in the background that have not ended."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Raw, structs

from gateway.endpoints.background.course import body_of
from gateway.endpoints.background.followers import FOLLOWERS
from gateway.endpoints.background.watching import watch
from gateway.endpoints.call.held import telling_refusals
from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.kept_responses import find_kept, kept_here, refuse_unkept, response_id_of
from gateway.endpoints.stored.paging import MAX_QUERY_CHARACTERS
from gateway.http.context import CLIENT, CONTEXT, METRICS
from gateway.inflight.kept_responses import KeptResponse
from gateway.kept.background import Background, OpenResponse, Standing
from gateway.kept.response_log import ResponseLogEntry, written
from gateway.openai.errors import errors, kept_errors
from gateway.responses.answer import DeletedResponse, ResponseAnswer
from gateway.responses.rendering.background_events import cancelled_event

MAX_CANCELS = 8  # its log grows ten times a second at most, and a cancel takes a few milliseconds

_BOOLEANS = {"true": True, "false": False}


async def show_response(http: web.Request) -> web.StreamResponse:
    """As its client got it, or as far as it is; or its events, from one of them on."""
    after = _starting_after(http)
    store, background = kept_here(http), http.app[CONTEXT].background
    assert background is not None, "it is where answers are kept"
    with telling_refusals():
        kept = await find_kept(http, store)
        running = None if kept is not None else await _running(http, background)
        if kept is None and running is None:
            kept = await find_kept(http, store)  # it has ended meanwhile
        if kept is None and running is None:
            await refuse_unkept(http)
    if after is not None:
        if kept is not None and not _answer_of(kept).background:
            raise kept_errors.not_in_background()
        return await watch(http, background, response_id_of(http), after)
    if kept is not None:
        return web.Response(body=bytes(kept.answer), content_type="application/json")
    assert running is not None
    return json_answer(_as_it_is(running))


async def cancel_response(http: web.Request) -> web.Response:
    """End a response in the background; of one that has ended, the answer."""
    store, background = kept_here(http), http.app[CONTEXT].background
    assert background is not None, "it is where answers are kept"
    with telling_refusals():
        for _ in range(MAX_CANCELS):
            running = await _running(http, background)
            if running is None:
                kept = await find_kept(http, store)
                if kept is None:
                    await refuse_unkept(http)
                if not _answer_of(kept).background:
                    raise kept_errors.not_in_background()
                return web.Response(body=bytes(kept.answer), content_type="application/json")
            answer = structs.replace(_as_it_is(running), status="cancelled")
            if await _is_cancelled(http, background, running, answer):
                return json_answer(answer)
    raise errors.no_endpoints("the response goes on too quickly: ask again")


async def remove_response(http: web.Request) -> web.Response:
    """Keep it no longer, and end it where it has not ended; answers that went on from it stay."""
    store, background = kept_here(http), http.app[CONTEXT].background
    assert background is not None, "it is where answers are kept"
    response_id = response_id_of(http)
    with telling_refusals():
        running = await _running(http, background)
        if running is not None and await background.remove(response_id):
            await _let_go(http, running, response_id)
        elif await find_kept(http, store) is None:
            await refuse_unkept(http)
        await store.forget(response_id)
    return json_answer(DeletedResponse(id=response_id))


async def _is_cancelled(
    http: web.Request, background: Background, running: OpenResponse, answer: ResponseAnswer
) -> bool:
    events = cancelled_event(answer, running.next)
    entry = ResponseLogEntry(first=running.next, events=events, at_s=time.time(), is_last=True)
    kept = msgspec.json.encode(_kept(http, running, answer))
    if await background.cancel(answer.id, running.num_log_bytes, written(entry), kept) is not Standing.OK:
        return False
    await _let_go(http, running, answer.id)
    return True


def _kept(http: web.Request, running: OpenResponse, answer: ResponseAnswer) -> KeptResponse:
    """With what was asked, where that is still read as it was."""
    with suppress(errors.ApiError):
        body = body_of(http.app[CONTEXT], running.request, http.app[METRICS].unkept_responses.inc)
        assert body.kept is not None
        return body.kept.written(body.input, answer)
    earlier: list[dict[str, Any]] = msgspec.json.decode(running.request.earlier)
    return KeptResponse(running.request.tenant, len(earlier), earlier, Raw(msgspec.json.encode(answer)))


async def _let_go(http: web.Request, running: OpenResponse, response_id: str) -> None:
    """Its conversation is free, and its follower hears of it."""
    store = http.app[CONTEXT].conversations
    if running.request.conversation and store is not None:
        await store.unlock(running.request.conversation, response_id)
    http.app[FOLLOWERS].look_soon()


async def _running(http: web.Request, background: Background) -> OpenResponse | None:
    return await background.find(http[CLIENT].tenant, response_id_of(http))


def _as_it_is(running: OpenResponse) -> ResponseAnswer:
    answer = msgspec.json.decode(running.request.blank, type=ResponseAnswer)
    return structs.replace(answer, status="queued" if running.status == "queued" else "in_progress")


def _answer_of(kept: KeptResponse) -> _Background:
    return msgspec.json.decode(kept.answer, type=_Background)


def _starting_after(http: web.Request) -> int | None:
    """Behind which event a stream begins, -1 for all; None where none is asked for. `ApiError` 400."""
    given = dict(http.query)
    for name, text in given.items():
        if name not in ("stream", "starting_after", "include_obfuscation"):
            raise errors.invalid(f"{name[:MAX_QUERY_CHARACTERS]!r} is not a known parameter", name, "unknown_parameter")
        if name != "starting_after" and text not in _BOOLEANS:
            raise errors.invalid(f"{name!r} is true or false", name)
    after = given.get("starting_after")
    is_number = after is not None and after.isascii() and after.isdigit() and len(after) <= 12
    if after is not None and not is_number:
        raise errors.invalid("'starting_after' is the number of an event", "starting_after")
    if not _BOOLEANS[given.get("stream", "false")]:
        if after is not None:
            raise errors.invalid("'starting_after' is of streams: it needs stream=true", "starting_after")
        return None
    return -1 if after is None else int(after)


class _Background(msgspec.Struct, frozen=True):
    """What is looked at of an answer; those of earlier versions say the same."""

    background: bool = False
