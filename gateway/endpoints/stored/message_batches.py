"""``/v1/messages/batches``: requests of Anthropic's Messages API, answered within a day. The batch service has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
from aiohttp import web

from gateway.anthropic.batch_results import result_pieces
from gateway.anthropic.batches import MessageBatch, MessageBatchList, MessageBatchRemoved, has_results
from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.paging import page_query
from gateway.endpoints.stored.transfer import PIECE_BYTES, pass_on, send_pieces
from gateway.http import encodings
from gateway.http.context import CLIENT, CONTEXT, MESSAGE_BATCHES, TRANSFERS
from gateway.openai.errors import batch_errors, errors
from gateway.tenants.promises import check_window
from shared.messages.batches.batches import MESSAGES_WINDOW_S, BatchPage

MAX_BATCHES_A_PAGE, BATCHES_A_PAGE = 1000, 20  # as Anthropic has them
RESULTS_TYPE = "application/x-jsonl"

_PLACES = {"after_id": "after", "before_id": "before"}
"""Anthropic's names of where a page lies, and the service's."""
_BETA = {"beta": ("true", "false")}  # what Anthropic's client says of its beta interface, whose batches are the same


async def make_batch(http: web.Request) -> web.Response:
    """Begin one; its requests are as long together as a file may be, and not held here."""
    config, client, service = http.app[CONTEXT].config, http[CLIENT], http.app[MESSAGE_BATCHES]
    check_window(config, client, MESSAGES_WINDOW_S)
    encodings.check_type(http)
    most = config.batches.max_file_bytes
    made = await pass_on(
        http,
        most,
        errors.body_too_large(most),
        lambda requests: service.make_batch_of(client.tenant, client.key_id.hex(), requests),
    )
    return json_answer(MessageBatch.of(made))


async def list_batches(http: web.Request) -> web.Response:
    """Those of the client's tenant, the newest first."""
    asked = page_query(http, MAX_BATCHES_A_PAGE, BATCHES_A_PAGE, _BETA, tuple(_PLACES))
    query = {_PLACES.get(name, name): text for name, text in asked.items() if name not in _BETA}
    page = await _page(http, query)
    data = [MessageBatch.of(one) for one in page.batches]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return json_answer(MessageBatchList(data=data, has_more=page.has_more, first_id=first, last_id=last))


async def show_batch(http: web.Request) -> web.Response:
    """How one stands."""
    found = await http.app[MESSAGE_BATCHES].batch(http[CLIENT].tenant, http.match_info["batch"])
    return json_answer(MessageBatch.of(found))


async def cancel_batch(http: web.Request) -> web.Response:
    """Send no more of one; what has been answered stays."""
    found = await http.app[MESSAGE_BATCHES].cancel_batch(http[CLIENT].tenant, http.match_info["batch"])
    return json_answer(MessageBatch.of(found))


async def remove_batch(http: web.Request) -> web.Response:
    """Remove one that has ended, with its results."""
    removed = await http.app[MESSAGE_BATCHES].remove_batch(http[CLIENT].tenant, http.match_info["batch"])
    return json_answer(MessageBatchRemoved(id=removed.id))


async def send_results(http: web.Request) -> web.StreamResponse:
    """The results of one that has ended, a line a request: first the answers, then the others."""
    tenant, service = http[CLIENT].tenant, http.app[MESSAGE_BATCHES]
    batch = await service.batch(tenant, http.match_info["batch"])
    if not batch.has_ended:
        raise batch_errors.batch_not_ended()
    if not has_results(batch):
        raise batch_errors.no_results(
            batch.problems[0].message if batch.problems else "it was cancelled before it began"
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(http.app[TRANSFERS].one(tenant))
        files = [
            await stack.enter_async_context(service.content(tenant, file))
            for file in (batch.output_file_id, batch.error_file_id)
            if file is not None
        ]
        response = web.StreamResponse(headers={"Content-Type": RESULTS_TYPE})
        await send_pieces(http, response, _results(files))
    return response


async def _results(files: list[aiohttp.ClientResponse]) -> AsyncIterator[bytes]:
    for file in files:
        async for piece in result_pieces(file.content.iter_chunked(PIECE_BYTES)):
            yield piece


async def _page(http: web.Request, query: dict[str, str]) -> BatchPage:
    """As the service has it; what it says of a place is told by the place's name here."""
    try:
        return await http.app[MESSAGE_BATCHES].batches(http[CLIENT].tenant, query)
    except errors.ApiError as error:
        names = {own: name for name, own in _PLACES.items()}
        if error.param not in names:
            raise
        raise errors.invalid(error.message, names[error.param], error.code) from error
