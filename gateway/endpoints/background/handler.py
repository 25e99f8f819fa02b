"""``POST /v1/responses``, where the answer may be asked for later."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from aiohttp import web
from msgspec import structs

from gateway.answers.call_record import Visit
from gateway.endpoints.background.course import Course, made
from gateway.endpoints.background.followers import FOLLOWERS
from gateway.endpoints.background.watching import watch
from gateway.endpoints.call.endpoint import Handler
from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.call.preparation import BodyPrompts
from gateway.endpoints.chats.responses import ResponsesEndpoint
from gateway.http.body import body_data
from gateway.http.context import CLIENT, CONTEXT
from gateway.inflight.calls.job import Job
from gateway.kept.background import (
    MAX_IN_ALL,
    MAX_OF_TENANT,
    MAX_REQUEST_BYTES,
    BackgroundRequest,
    Claim,
)
from gateway.kept.response_log import ResponseLogEntry, written
from gateway.openai.errors import kept_errors
from gateway.responses.answer import ResponseAnswer
from gateway.responses.rendering.background_events import queued_events
from gateway.responses.rendering.blank_answer import blank_answer
from gateway.responses.requests.request import ResponsesRequest
from gateway.tenants.promises import SLO_HEADER

_KEPT_HEADERS = (SLO_HEADER, "traceparent", "tracestate")


class ResponsesHandler(Handler[ResponsesRequest]):
    """As `Handler`; what is asked for in the background is kept, then followed."""

    def __init__(self) -> None:
        super().__init__(ResponsesEndpoint())

    async def respond(
        self,
        http: web.Request,
        record: Visit,
        found: BodyPrompts[ResponsesRequest],
        jobs: Sequence[Job],
        room: ExitStack,
    ) -> web.StreamResponse:
        """Its slots go to its follower, and come back with the answer."""
        body, background = found.body, http.app[CONTEXT].background
        if not body.background:
            return await super().respond(http, record, found, jobs, room)
        assert background is not None, "the body was refused without it"
        [job] = jobs
        job = dataclasses.replace(job, wants_place=False)
        blank = blank_answer(body.filled(found.model.sampling), f"resp_{record.request_id}", int(time.time()))
        queued = structs.replace(blank, status="queued")
        claim = _claim(http, body, job, queued, await body_data(http))
        course = made(http.app[CONTEXT], found, job, claim)
        record.is_handed_on = True
        # its client may leave meanwhile: it is there, and followed, or neither
        await asyncio.shield(_begin(http, claim, course, room.pop_all(), record))
        if body.stream:
            return await watch(http, background, queued.id, -1)
        return json_answer(queued)


async def _begin(http: web.Request, claim: Claim, course: Course, room: ExitStack, record: Visit) -> None:
    """Have it kept in Redis, from where it goes on whatever becomes of this process; `ApiError` where it may not."""
    followers, kept = http.app[FOLLOWERS], course.body.kept
    try:
        outcome = await followers.create(claim)
        if outcome == "full":
            raise kept_errors.too_many_in_background(MAX_IN_ALL, "of all")
        if outcome == "tenant_full":
            raise kept_errors.too_many_in_background(MAX_OF_TENANT, "of this tenant")
    except BaseException:
        record.is_handed_on = False
        room.close()
        raise
    if kept is not None and kept.held is not None:
        kept.held.hand_over()
        kept.held = None
    followers.begin(claim, course, room, record.timeline)


def _claim(http: web.Request, body: ResponsesRequest, job: Job, queued: ResponseAnswer, data: bytes) -> Claim:
    """All that a process that follows it has to know."""
    client, earlier = http[CLIENT], [] if body.kept is None else body.kept.earlier
    request = BackgroundRequest(
        tenant=client.tenant,
        key_id=client.key_id.hex(),
        body=data,
        earlier=msgspec.json.encode(earlier),
        seed=job.sampling.seed,
        arrived_s=job.enqueued_s,
        blank=msgspec.json.encode(queued),
        headers={name: http.headers[name] for name in _KEPT_HEADERS if name in http.headers},
        conversation=body.conversation or "",
    )
    if len(request.body) + len(request.earlier) > MAX_REQUEST_BYTES:
        raise kept_errors.too_much_for_background(MAX_REQUEST_BYTES)
    entry = ResponseLogEntry(first=0, events=queued_events(queued), at_s=time.time())
    return Claim(queued.id, 0, request, entry.next, written(entry))
