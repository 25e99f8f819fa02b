"""Follows one response in the background: submits it, writes what comes to its log, and keeps the answer.

It ends in one of three ways: the answer is kept, whole or failed; another process, or a client, has taken the response
away; or this process ends, and the next one goes on from the log.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import ExitStack

import msgspec
import structlog
from aiohttp import web

from gateway.answers import call_record
from gateway.answers.answer import noted, prompt_usage, usage
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import first_news, later_news
from gateway.endpoints.background.course import Course, body_of, course_of, of_life, request_id_of
from gateway.endpoints.background.log_writer import RETRY_S, LogWriter, NotFollowedError
from gateway.endpoints.chats.responses import ResponsesEndpoint
from gateway.http.context import CONTEXT, KEYS, METRICS, RATES, SLOTS
from gateway.inflight import tracing
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.kept_responses import MAX_RESPONSE_BYTES, KeptResponse
from gateway.inflight.queue_port import QueueUnavailableError
from gateway.inflight.timeline import Timeline
from gateway.kept.background import Background, Claim, Standing
from gateway.kept.conversations import ConversationLockedError
from gateway.kept.held_conversation import HeldConversation
from gateway.kept.response_log import ResponseLogEntry
from gateway.openai.answers.delta import Delta, End
from gateway.openai.errors import errors, kept_errors
from gateway.responses.answer import ResponseAnswer
from gateway.responses.rendering.background_events import failed_answer, failed_events
from gateway.responses.requests.request import ResponsesRequest
from gateway.tenants.turn_threads import THREADS

FLUSH_S = 0.2
"""Tokens that come within this time are written together: what a gateway's death can cost is computed again."""
PATH = "/v1/responses"

_log = structlog.get_logger(__name__)


class Follower:
    """Of one response, for one life of it."""

    def __init__(self, app: web.Application, background: Background, claim: Claim) -> None:
        self._app = app
        self._context = app[CONTEXT]
        self._claim = claim
        self._log = LogWriter(background, claim)
        self._course: Course | None = None
        self._body: ResponsesRequest | None = None
        self.standing = Standing.OK
        """What it was told; what says that it does not follow any more cancels it."""

    @property
    def response_id(self) -> str:
        """Of which response."""
        return self._claim.response_id

    async def follow(self, course: Course | None, room: ExitStack, timeline: Timeline) -> None:
        """Until it has ended, or is another one's. ``course`` and ``room``: of the request that brought it."""
        request = self._claim.request
        with tracing.request_span(self._context.tracer, ResponsesEndpoint.operation, request.headers) as span, room:
            record = Visit(request_id_of(self.response_id), request.tenant, span, timeline, path=PATH)
            try:
                await self._follow(record, course, room)
            except errors.ApiError as error:
                if error.code == errors.gateway_stopping().code:
                    record.is_handed_on = True
                else:
                    record.refuse(error)
                    await self._fail(error)
            except NotFollowedError as error:
                self.standing = error.standing
                self._leave(record)
            except asyncio.CancelledError:
                self._leave(record)
                raise
            except Exception:
                _log.exception("response_failed", response_id=self.response_id)
                await self._fail(errors.internal())
            finally:
                record.close(self._app[METRICS], asyncio.get_running_loop().time())

    async def found_lost(self) -> None:
        """Redis has come back without it."""
        if not self._log.is_ending:
            await self._log.restore()

    def _leave(self, record: Visit) -> None:
        if self.standing is Standing.ENDED:
            record.abandon()
        else:
            record.is_handed_on = True  # it is counted where it ends

    async def _follow(self, record: Visit, course: Course | None, room: ExitStack) -> None:
        if course is None:
            course = await self._course_of_claim(record, room)
        self._course, self._body = course, course.body
        num_tries = 0
        while True:
            try:
                return await self._run(record, course, num_tries)
            except QueueUnavailableError as error:  # it could not be submitted: it was taken, so it is tried again
                _log.warning("response not submitted, retrying", response_id=self.response_id, error=str(error))
                num_tries += 1
                await asyncio.sleep(RETRY_S)

    async def _course_of_claim(self, record: Visit, room: ExitStack) -> Course:
        request, metrics, rates = self._claim.request, self._app[METRICS], self._app[RATES]
        self._body = body_of(self._context, request, metrics.unkept_responses.inc)
        client = self._app[KEYS].ring.client_of(request.key_id)
        while True:
            held = self._app[SLOTS].take(client, 1, len(request.body) + len(request.earlier))
            try:
                room.enter_context(held)
                break
            except errors.ApiError as error:  # it was taken, so it waits for a slot here
                _log.info("response waits for a slot", response_id=self.response_id, why=error.message)
                await asyncio.sleep(RETRY_S)
        num_before = sum(len(entry.token_ids) for entry in self._log.entries)
        # its prompt was counted where it was taken
        room.callback(lambda: rates.settle(client, 0, record.timeline.num_tokens - num_before))
        threads = self._app[THREADS].of(request.tenant)
        return await course_of(self._context, threads, client, self._body, self._claim, record)

    async def _run(self, record: Visit, course: Course, num_tries: int) -> None:
        job = dataclasses.replace(of_life(course.job, self._claim, self._log.entries, num_tries), span=record.span)
        record.admit(ResponsesEndpoint.operation, [job])
        client = self._app[KEYS].ring.client_of(self._claim.request.key_id)
        async with self._context.dispatcher.run(job) as call:
            with self._app[KEYS].holding(client, call):
                record.submit(call)
                self._go_on(record, course, call)
                news = await first_news(call, course.patience)
                while not await self._take(record, course, call, news):
                    await asyncio.sleep(FLUSH_S)
                    news = await later_news(call, course.patience)
                record.outcome = call_record.OK

    def _go_on(self, record: Visit, course: Course, call: InflightCall) -> None:
        """From what earlier lives have told."""
        if not self._log.has_begun:
            course.renderer.go_on(None, self._log.next)
            return
        begun = call.requests[0].begun
        course.renderer.go_on(begun, self._log.next)
        if begun is not None:
            first_s = next(entry.at_s for entry in self._log.entries if entry.token_ids)
            then = asyncio.get_running_loop().time() - (time.time() - first_s)
            record.timeline.add(begun.num_tokens, then, num_thought_tokens=begun.num_thought_tokens)

    async def _take(self, record: Visit, course: Course, call: InflightCall, news: list[Delta] | End) -> bool:
        """Write what has come; whether that was the end."""
        renderer, generation = course.renderer, call.requests[0].generation
        num_known = record.timeline.num_tokens
        deltas = noted(record.timeline, call, news, asyncio.get_running_loop().time())
        told = [] if self._log.has_begun else renderer.opening(prompt_usage(call))
        told += [event for delta in deltas for event in renderer.events(delta)]
        is_over = call.is_complete
        if is_over:
            told += renderer.closing(usage(call, record.timeline))
        token_ids, scores = generation.since(num_known)
        entry = ResponseLogEntry(
            first=self._log.next,
            events=told,
            token_ids=token_ids,
            logprobs=scores,
            cached_tokens=generation.num_cached_tokens,
            at_s=time.time(),
            is_last=is_over,
        )
        if not is_over:
            await self._log.append(entry)
            return False
        assert renderer.told is not None
        await self._end(entry, renderer.told)
        return True

    async def _fail(self, error: errors.ApiError) -> None:
        """Have it kept that it has failed, with what had come."""
        blank = msgspec.json.decode(self._claim.request.blank, type=ResponseAnswer)
        if self._course is not None and self._log.has_begun:
            self._course.renderer.go_on(None, self._log.next)  # behind what was written, not what was to be
            events = self._course.renderer.failed(error)
            answer = self._course.renderer.told
            assert answer is not None
        else:
            answer = failed_answer(blank, error)
            events = failed_events(answer, error, self._log.next)
        try:
            await self._end(
                ResponseLogEntry(first=self._log.next, events=events, at_s=time.time(), is_last=True), answer
            )
        except NotFollowedError as not_followed:
            self.standing = not_followed.standing

    async def _end(self, entry: ResponseLogEntry, answer: ResponseAnswer) -> None:
        """Its conversation first: should this process end in between, the next one finds that done."""
        kept = self._kept(answer)
        data = msgspec.json.encode(kept)
        if len(data) > MAX_RESPONSE_BYTES:
            error = kept_errors.response_too_long(MAX_RESPONSE_BYTES)
            answer = failed_answer(msgspec.json.decode(self._claim.request.blank, type=ResponseAnswer), error)
            entry = msgspec.structs.replace(entry, events=failed_events(answer, error, entry.first))
            data = msgspec.json.encode(self._kept(answer))
        held = await self._held_conversation()
        if held is not None and answer.status != "failed" and self._body is not None and self._body.kept is not None:
            await self._body.kept.continue_conversation(held, kept, self.response_id)
        await self._log.end(entry, data)
        if held is not None:
            await held.unlock()

    def _kept(self, answer: ResponseAnswer) -> KeptResponse:
        if self._body is not None and self._body.kept is not None:
            return self._body.kept.written(self._body.input, answer)
        return KeptResponse(self._claim.request.tenant, 0, [], msgspec.Raw(msgspec.json.encode(answer)))

    async def _held_conversation(self) -> HeldConversation | None:
        """Locked for this response already, or void since another one did it."""
        request, store = self._claim.request, self._context.conversations
        if not request.conversation or store is None:
            return None
        while True:
            try:
                found = await HeldConversation.take(store, request.tenant, request.conversation, self.response_id)
            except QueueUnavailableError:
                await asyncio.sleep(RETRY_S)
            except ConversationLockedError:
                self._app[METRICS].unkept_responses.inc()
                _log.warning("conversation not written", conversation_id=request.conversation, why="it is locked")
                return None
            else:
                return None if found is None else found[0]
