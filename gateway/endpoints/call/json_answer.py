"""An answer that is an object of the interface, as JSON."""

from __future__ import annotations

import msgspec
from aiohttp import web


def json_answer(answer: msgspec.Struct) -> web.Response:
    """The whole HTTP answer."""
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
