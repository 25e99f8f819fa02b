"""What a client expects before it sends its body: 100-continue, or it is told that nothing else can be met.

The library asks for this before any handler or middleware, and its own refusal is no JSON and repeats what came, which
may be anything: a key put into the wrong header, or characters that no answer can have.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.http.refusals import refusal_answer
from gateway.openai.errors import errors

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def refusing_others(handle: Handle) -> Handle:
    """``handle`` for requests that expect nothing, or 100-continue."""

    async def checked(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.getall("Expect", ())
        if len(expected) <= 1 and all(one.strip().lower() == "100-continue" for one in expected):
            return await handle(request)
        request_id = os.urandom(16).hex()
        response = refusal_answer(errors.expectation_failed(), request.path, request_id)
        response.headers["x-treadle-request-id"] = request_id
        response.force_close()  # it is unknown whether its body comes now
        return response

    return checked
