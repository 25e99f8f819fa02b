"""``/v1/batches``: requests in a file, answered within a window."""

from __future__ import annotations

from aiohttp import web

from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.paging import page_query
from gateway.http.body import read_body
from gateway.http.context import BATCHES, CLIENT, CONTEXT
from gateway.openai.batches import BatchAnswer, BatchList, BatchRequest
from gateway.tenants.promises import check_window

MAX_BATCHES_A_PAGE, BATCHES_A_PAGE = 100, 20  # as OpenAI has them


async def make_batch(http: web.Request) -> web.Response:
    """Begin one."""
    body = await read_body(http, BatchRequest)
    client = http[CLIENT]
    check_window(http.app[CONTEXT].config, client, body.window_s)
    made = await http.app[BATCHES].make_batch(client.tenant, body.new_batch(client.key_id.hex()))
    return json_answer(BatchAnswer.of(made))


async def list_batches(http: web.Request) -> web.Response:
    """Those of the client's tenant, the newest first."""
    query = page_query(http, MAX_BATCHES_A_PAGE, BATCHES_A_PAGE)
    page = await http.app[BATCHES].batches(http[CLIENT].tenant, query)
    data = [BatchAnswer.of(one) for one in page.batches]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return json_answer(BatchList(data=data, first_id=first, last_id=last, has_more=page.has_more))


async def show_batch(http: web.Request) -> web.Response:
    """How one stands."""
    return json_answer(BatchAnswer.of(await http.app[BATCHES].batch(http[CLIENT].tenant, http.match_info["batch"])))


async def cancel_batch(http: web.Request) -> web.Response:
    """Send no more of one; what has been answered stays."""
    return json_answer(
        BatchAnswer.of(await http.app[BATCHES].cancel_batch(http[CLIENT].tenant, http.match_info["batch"]))
    )
