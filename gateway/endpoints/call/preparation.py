"""From a valid body to jobs: which model is asked for what, by which promise, and what it reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel

from gateway.answers.answer import Renderer
from gateway.answers.call_record import Visit
from gateway.answers.news_wait import NewsWait
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.pictures import num_extra_tokens
from gateway.generation.stop_strings import StopPattern
from gateway.http.context import GatewayContext
from gateway.inflight.calls.job import Job
from gateway.models.models import ServedModel
from gateway.openai.requests.schema import GenerationRequest
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.auth import Client
from gateway.tenants.promises import Promise, choose_promise
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.config.services.queue import cache_partition
from shared.messages.requests.payload import Constraint
from shared.messages.requests.pictures import Picture

JOBS_A_ROUND = 32  # of one call, that are made in one round of the loop

Body = TypeVar("Body", bound=BaseModel)


class Endpoint(Protocol[Body]):
    """What distinguishes an endpoint."""

    operation: str
    """Its name in OpenTelemetry's conventions (``gen_ai.operation.name``)."""
    prompt_param: str
    """The field that holds the prompt."""
    body_model: type[Body]
    task: ModelTask
    """What its models are served for."""

    async def recalled(self, http: web.Request, body: Body, room: ExitStack) -> None:
        """Find what the body leaves out, since it was kept here; ``room`` gets the bytes of it."""

    def asked(self, body: Body) -> GenerationRequest:
        """What is to be generated, in the words that all endpoints have in common."""

    async def constraint(self, body: Body, model: ServedModel, threads: TenantThreads) -> Constraint | None:
        """What the answer has to be; `ApiError` 400 for what it cannot. ``threads``: what takes long is done there."""

    async def prompts(self, body: Body, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The prompts as the model reads them; at least one."""

    async def pictures(self, body: Body, model: ServedModel, able: list[str], threads: TenantThreads) -> list[Picture]:
        """Images of its one prompt; ``able``: names of the models that take any. `ApiError` 400 for others."""

    def token_bytes(self, body: Body, model: ServedModel) -> Sequence[bytes]:
        """The text of each token, as far as the answer shows it."""

    def thoughts(self, body: Body, model: ServedModel) -> ThoughtReading | None:
        """How thoughts are told apart from the answer; None where they are not."""

    def room(self, body: Body) -> job_parts.Room:
        """How long the answer may be."""

    def renderer(self, body: Body, model: ServedModel, request_id: str, created: int) -> Renderer:
        """How the answer is written."""


@dataclass(frozen=True)
class BodyPrompts(Generic[Body]):
    """A body as its model reads it."""

    endpoint: Endpoint[Body]
    body: Body
    model: ServedModel
    promise: Promise
    constraint: Constraint | None
    pictures: list[Picture]
    token_ids: list[list[int]]
    """One list a prompt."""

    @property
    def num_tokens(self) -> int:
        """Of all prompts."""
        return sum(map(len, self.token_ids)) + num_extra_tokens(self.pictures)

    @property
    def num_payload_bytes(self) -> int:
        """What their payloads may take, at most."""
        vocab_size = self.model.tokenizer.vocab_size
        return job_parts.payload_bytes(vocab_size, self.token_ids, self.constraint, self.pictures)


async def find_prompts(
    context: GatewayContext,
    threads: TenantThreads,
    endpoint: Endpoint[Body],
    body: Body,
    client: Client,
    slo_header: str | None,
    deadline_s: float | None = None,
) -> BodyPrompts[Body]:
    """What a body asks for; `ApiError` for what cannot be, or may not."""
    asked = endpoint.asked(body)
    model = job_parts.find_model(context, asked.model, endpoint.task)
    promise = choose_promise(context.config, client, asked.slo, slo_header, deadline_s)
    constraint = await endpoint.constraint(body, model, threads)
    pictures = await endpoint.pictures(body, model, context.models_with_pictures, threads)
    token_ids = await endpoint.prompts(body, model, threads)
    return BodyPrompts(endpoint, body, model, promise, constraint, pictures, token_ids)


def patience_of(context: GatewayContext, found: BodyPrompts[Body]) -> NewsWait:
    """How long its answer may wait for its next tokens."""
    asked, cold_start_ttl_s = found.endpoint.asked(found.body), context.config.gateway.cold_start_ttl_s
    return NewsWait.of(found.promise.queue_ttl_s, cold_start_ttl_s, is_ranked=asked.is_ranked)


async def make_jobs(context: GatewayContext, record: Visit, found: BodyPrompts[Body]) -> list[Job]:
    """One a prompt; `ApiError` 400 when one of them does not fit."""
    endpoint, body, model = found.endpoint, found.body, found.model
    asked, room = endpoint.asked(body), endpoint.room(body)
    now_s, thoughts = time.time(), endpoint.thoughts(body, model)
    num_extra = num_extra_tokens(found.pictures)
    partition = cache_partition(context.config.tenants, record.tenant, asked.cache_salt or "")
    limits = [
        job_parts.max_tokens(model, len(one) + num_extra, room, endpoint.prompt_param, asked.num_candidates)
        for one in found.token_ids
    ]
    jobs, stops = [], [StopPattern(one) for one in asked.stop]
    for number, (prompt, limit) in enumerate(zip(found.token_ids, limits, strict=True)):
        if number % JOBS_A_ROUND == JOBS_A_ROUND - 1:
            await asyncio.sleep(0)
        jobs.append(
            Job(
                request_id=record.request_id if len(found.token_ids) == 1 else f"{record.request_id}-{number}",
                model=model.model,
                adapter=model.adapter,
                prompt_token_ids=prompt,
                sampling=job_parts.sampling(context, model, asked, limit, found.constraint),
                stops=stops,
                token_bytes=endpoint.token_bytes(body, model),
                slo=found.promise.slo,
                tenant=record.tenant,
                enqueued_s=now_s,
                span=record.span,
                wants_place=asked.include_queue,
                thoughts=thoughts,
                block_tokens=context.config.engine.block_size if context.config.routes_warm else 0,
                pictures=found.pictures,
                partition=partition,
                weights=model.weights,
            )
        )
    return jobs
