"""What a response in the background asks for, as a job: for the process that took it, and for one that goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait
from gateway.endpoints.call.preparation import BodyPrompts, find_prompts, make_jobs, patience_of
from gateway.endpoints.chats.responses import ResponsesEndpoint
from gateway.http.body import parse_body, telling_faults
from gateway.http.context import GatewayContext
from gateway.inflight.calls.job import Job
from gateway.kept.background import BackgroundRequest, Claim
from gateway.kept.response_log import ResponseLogEntry
from gateway.responses.rendering.renderer import ResponsesRenderer
from gateway.responses.requests.kept_conversation import KeptConversation
from gateway.responses.requests.request import ResponsesRequest
from gateway.tenants.auth import Client
from gateway.tenants.promises import SLO_HEADER
from gateway.tenants.turn_threads import TenantThreads
from shared.messages.requests.requests import Chunk


@dataclass(frozen=True)
class Course:
    """Ready to be submitted."""

    body: ResponsesRequest
    job: Job
    renderer: ResponsesRenderer
    patience: NewsWait


def request_id_of(response_id: str) -> str:
    """The one by which logs know it."""
    return response_id.removeprefix("resp_")


def body_of(context: GatewayContext, request: BackgroundRequest, on_failure: Callable[[], None]) -> ResponsesRequest:
    """The request as it was taken, with what stood before it. Raises as reading a body does."""
    body = parse_body(request.body, ResponsesRequest)
    earlier: Sequence[dict[str, Any]] = msgspec.json.decode(request.earlier)
    if not body.is_whole:
        with telling_faults():
            body.go_on(earlier)
    body.keep_in(KeptConversation(context.kept_responses, request.tenant, earlier, on_failure))
    return body


async def course_of(
    context: GatewayContext,
    threads: TenantThreads,
    client: Client,
    body: ResponsesRequest,
    claim: Claim,
    record: Visit,
) -> Course:
    """From what was kept of it. `ApiError` where that cannot be any more: models and promises are those of today."""
    endpoint, request = ResponsesEndpoint(), claim.request
    found = await find_prompts(context, threads, endpoint, body, client, request.headers.get(SLO_HEADER))
    [job] = await make_jobs(context, record, found)
    sampling = dataclasses.replace(job.sampling, seed=request.seed)
    return made(context, found, dataclasses.replace(job, sampling=sampling, enqueued_s=request.arrived_s), claim)


def made(context: GatewayContext, found: BodyPrompts[ResponsesRequest], job: Job, claim: Claim) -> Course:
    """The course of a job that is ready."""
    request_id, created = request_id_of(claim.response_id), int(claim.request.arrived_s)
    renderer = found.endpoint.renderer(found.body, found.model, request_id, created)
    assert isinstance(renderer, ResponsesRenderer)
    return Course(found.body, dataclasses.replace(job, is_logged=True), renderer, patience_of(context, found))


def of_life(job: Job, claim: Claim, entries: Sequence[ResponseLogEntry], num_tries: int) -> Job:
    """The same for this life, with what those before it have brought. Each try is another request to the queue: a
    cancel of the last one may still be on its way there."""
    request_id = request_id_of(claim.response_id)
    if claim.life or num_tries:
        request_id += f"-{claim.life}-{num_tries}"
    return dataclasses.replace(
        job,
        request_id=request_id,
        life=claim.life,
        begun=_chunk_of(request_id, claim.life, entries),
        waited_s=max(0.0, time.time() - claim.request.arrived_s),
    )


def _chunk_of(request_id: str, life: int, entries: Sequence[ResponseLogEntry]) -> Chunk | None:
    token_ids = [token_id for entry in entries for token_id in entry.token_ids]
    if not token_ids:
        return None
    known = [entry.cached_tokens for entry in entries if entry.cached_tokens is not None]
    scores = [score for entry in entries for score in entry.logprobs]
    cached_tokens = known[0] if known else None
    return Chunk(request_id, life, 0, token_ids, logprobs=scores, cached_tokens=cached_tokens)
