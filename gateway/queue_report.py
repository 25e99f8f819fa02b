"""``GET /v1/queue``: how long requests wait now, by model and class."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from gateway.context import CONTEXT
from gateway.queue_answers import QueueEntry, QueueReport


async def show_queue(request: web.Request) -> web.Response:
    """What the queue manager said last; nothing where that is too long ago to be believed."""
    view = request.app[CONTEXT].dispatcher.view
    now = asyncio.get_running_loop().time()
    age_s = view.age_s(now)
    report = QueueReport(
        age_s=None if age_s is None else round(age_s, 3),
        is_stale=not view.is_fresh(now),
        data=[QueueEntry.of(line) for line in view.lines(now)],
    )
    return web.Response(body=msgspec.json.encode(report), content_type="application/json")
