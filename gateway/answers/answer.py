"""An answer in one piece, and what it has in common with one that is streamed: how it is written, and how counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec import UNSET

from gateway.answers import call_record
from gateway.answers.call_record import Visit
from gateway.answers.event import SseEvent
from gateway.answers.news_wait import NewsWait, first_news, rest
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.timeline import Timeline
from gateway.openai.answers.answers import CompletionTokensDetails, PromptTokensDetails, Usage
from gateway.openai.answers.delta import Crashed, Delta, End, Failure, NodeRefusal, Rejection, merged
from gateway.openai.errors import errors

MAX_INLINE_BYTES = 1 << 14
"""Of embeddings: a kilobyte of them takes some 50 us to write, and more than these go to a thread."""


class Renderer(Protocol):
    """How one endpoint writes an answer."""

    def opening(self, usage: Usage) -> Sequence[SseEvent]:
        """Events before the first text; the prompt is counted by then."""

    def events(self, delta: Delta) -> Sequence[SseEvent]:
        """What is new of a choice of a stream; none where nothing can be shown yet."""

    def closing(self, usage: Usage) -> Sequence[SseEvent]:
        """The last events: the counts, where they are wanted, and that the stream is complete."""

    def failed(self, error: errors.ApiError) -> Sequence[SseEvent]:
        """The last events of a stream that is not: why there is no more of it."""

    def whole(self, choices: Sequence[Delta], usage: Usage) -> msgspec.Struct:
        """The answer in one piece: all choices, complete, in their order."""

    async def settle(self) -> None:
        """Do what is to be done before the end of an answer goes out."""


async def answer_whole(record: Visit, call: InflightCall, renderer: Renderer, patience: NewsWait) -> web.Response:
    """Collect the answer, then send it."""
    now = asyncio.get_running_loop().time
    first = await first_news(call, patience)
    deltas = noted(record.timeline, call, first, now())
    while not call.is_complete:
        others = await rest(call, patience)
        deltas = [*deltas, *noted(record.timeline, call, others, now())]
    choices, counts = merged(deltas), usage(call, record.timeline)

    def body() -> bytes:
        return msgspec.json.encode(renderer.whole(choices, counts))

    is_long = sum(len(one.embedding) for one in choices) > MAX_INLINE_BYTES
    data = await asyncio.to_thread(body) if is_long else body()
    await renderer.settle()
    record.outcome = call_record.OK
    return web.Response(body=data, content_type="application/json")


def noted(timeline: Timeline, call: InflightCall, news: list[Delta] | End, now: float) -> list[Delta]:
    """The deltas, with their time taken down; `ApiError` for an end without an answer."""
    if isinstance(news, list):
        for delta in news:
            timeline.add(delta.num_tokens, now, delta.choice, num_thought_tokens=delta.num_thought_tokens)
        return news
    if isinstance(news, Rejection):
        raise errors.would_be_late(news, call.slo)
    if isinstance(news, NodeRefusal):
        raise errors.refused_by_node(news.why)
    if isinstance(news, Crashed):
        raise errors.engine_crashed(news)
    if news is Failure.ENGINE:
        raise errors.generation_failed()
    if news is Failure.STOPPING:
        raise errors.gateway_stopping()
    if news is Failure.REVOKED:
        raise errors.key_revoked()
    raise errors.no_endpoints("the request was lost several times while it ran")


def usage(call: InflightCall, timeline: Timeline) -> Usage:
    """The tokens so far."""
    return _counted(call, timeline.num_tokens, timeline.num_thought_tokens)


def prompt_usage(call: InflightCall) -> Usage:
    """Those of the prompt alone."""
    return _counted(call, 0, 0)


def _counted(call: InflightCall, num_output: int, num_thoughts: int) -> Usage:
    num_prompt, num_cached = call.num_prompt_tokens, call.num_cached_tokens
    return Usage(
        num_prompt,
        num_output,
        num_prompt + num_output,
        UNSET if num_cached is None else PromptTokensDetails(num_cached),
        CompletionTokensDetails(num_thoughts) if call.tells_thoughts else UNSET,
    )
