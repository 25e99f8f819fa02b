"""A refused request: its answer, in the shape of the API that was asked, and its log line.

The line says why, for which client and where; never a word of what the request said. It is a warning, so equal ones are
folded (`shared.telemetry.log_folding`): a client that is refused ten thousand times is a line and a number. What a
client made up itself (a path, the name of a field) is cut.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog
from aiohttp import web

from gateway.http.anthropic_errors import is_messages, messages_error
from gateway.http.context import CLIENT, REQUEST_ID, VISITED
from gateway.openai.errors.errors import ApiError

MAX_MADE_UP_CHARS = 100  # of a path or a field: enough to find it

_log = structlog.get_logger("gateway.request")


def refusal_answer(error: ApiError, path: str, request_id: str) -> web.Response:
    """The whole HTTP answer."""
    if not is_messages(path):
        return error.response()
    body = msgspec.to_builtins(messages_error(error, request_id))
    return web.json_response(body, status=error.status, headers=error.headers)


def log_refusal(error: ApiError, *, request_id: str, path: str, tenant: str, **known: Any) -> None:
    """``known``: what else is known of the request, such as its model."""
    _log.warning(
        "request_refused",
        request_id=request_id,
        status=error.status,
        code=error.code,
        param=None if error.param is None else error.param[:MAX_MADE_UP_CHARS],
        path=path[:MAX_MADE_UP_CHARS],
        tenant=tenant,
        **known,
    )


def log_unvisited(error: ApiError, request: web.Request) -> None:
    """Of a request that reached no endpoint: its `Visit` would have logged it."""
    if VISITED not in request:
        tenant = request[CLIENT].tenant if CLIENT in request else ""
        log_refusal(error, request_id=request[REQUEST_ID], path=request.path, tenant=tenant)
