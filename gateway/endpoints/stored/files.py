"""``/v1/files``: what batches read and what they leave. The bytes pass through; the batch service has them."""

from __future__ import annotations

from typing import get_args

from aiohttp import web

from gateway.endpoints.call.json_answer import json_answer
from gateway.endpoints.stored.paging import page_query
from gateway.endpoints.stored.transfer import PIECE_BYTES, pass_on, send_pieces
from gateway.http.context import BATCHES, CLIENT, CONTEXT, TRANSFERS
from gateway.openai.batches import FileAnswer, FileList, FileRemoved
from gateway.openai.errors import batch_errors, errors
from shared.messages.batches.batches import FilePurpose

FORM_BYTES = 64 << 10  # of a form beside its file
MAX_FILES_A_PAGE = 10_000  # as OpenAI has it


async def upload_file(http: web.Request) -> web.Response:
    """Take a file; it is as long as the cluster allows, and not held here."""
    options = http.app[CONTEXT].config.batches
    tenant, service = http[CLIENT].tenant, http.app[BATCHES]
    if http.content_type != "multipart/form-data":
        raise errors.unsupported_body("content type", http.content_type, "multipart/form-data")
    stored = await pass_on(
        http,
        options.max_file_bytes + FORM_BYTES,
        batch_errors.file_too_large(options.max_file_bytes),
        lambda form: service.take_file(tenant, http.headers["Content-Type"], form),
    )
    return json_answer(FileAnswer.of(stored))


async def list_files(http: web.Request) -> web.Response:
    """Those of the client's tenant."""
    choices = {"order": ("asc", "desc"), "purpose": get_args(FilePurpose)}
    query = page_query(http, MAX_FILES_A_PAGE, MAX_FILES_A_PAGE, choices)
    page = await http.app[BATCHES].files(http[CLIENT].tenant, query)
    data = [FileAnswer.of(one) for one in page.files]
    first, last = (data[0].id, data[-1].id) if data else (None, None)
    return json_answer(FileList(data=data, first_id=first, last_id=last, has_more=page.has_more))


async def show_file(http: web.Request) -> web.Response:
    """One."""
    return json_answer(FileAnswer.of(await http.app[BATCHES].file(http[CLIENT].tenant, http.match_info["file"])))


async def remove_file(http: web.Request) -> web.Response:
    """One that no batch reads."""
    removed = await http.app[BATCHES].remove_file(http[CLIENT].tenant, http.match_info["file"])
    return json_answer(FileRemoved(id=removed.id))


async def download_file(http: web.Request) -> web.StreamResponse:
    """Its bytes, no faster than the client reads them."""
    tenant = http[CLIENT].tenant
    with http.app[TRANSFERS].one(tenant):
        async with http.app[BATCHES].content(tenant, http.match_info["file"]) as found:
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            response.content_length = found.content_length
            await send_pieces(http, response, found.content.iter_chunked(PIECE_BYTES))
    return response
