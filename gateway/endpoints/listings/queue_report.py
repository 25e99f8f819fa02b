"""``GET /v1/queue``: how long requests wait now, by model and class."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.endpoints.call.json_answer import json_answer
from gateway.http.context import CLIENT, CONTEXT, KEYS
from gateway.openai.answers.queue_answers import QueueEntry, QueueReport


async def show_queue(request: web.Request) -> web.Response:
    """What the queue manager said last; nothing where that is too long ago to be believed.

    Where keys name several tenants, a client hears of its tenant's requests alone; no number tells of another's. The
    policies that `qlm` is compared with do not tell tenants apart: there it hears of none.
    """
    view = request.app[CONTEXT].dispatcher.view
    now = asyncio.get_running_loop().time()
    lines = view.lines(now)
    if request.app[KEYS].ring.has_tenants:
        lines = view.lines_of(request[CLIENT].tenant, now) if request.app[CONTEXT].config.queue.rules.is_fine else []
    age_s = view.age_s(now)
    report = QueueReport(
        age_s=None if age_s is None else round(age_s, 3),
        is_stale=not view.is_fresh(now),
        data=[QueueEntry.of(line) for line in lines],
    )
    return json_answer(report)
