"""``/v1/files``: what batches read and what they leave. The bytes pass through; the batch service has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import get_args

import aiohttp
import structlog
from aiohttp import web

from gateway.endpoints.json_answer import json_answer
from gateway.endpoints.paging import page_query
from gateway.http import encodings
from gateway.http.body import read_timeout_s
from gateway.http.context import BATCHES, CLIENT, CONNECTIONS, CONTEXT, REQUEST_ID, TRANSFERS
from gateway.http.flush import give_up
from gateway.openai import errors
from gateway.openai.batches import FileAnswer, FileList, FileRemoved
from shared.messages.batches import FilePurpose

PIECE_BYTES = 64 << 10
FORM_BYTES = 64 << 10  # of a form beside its file
MAX_FILES_A_PAGE = 10_000  # as OpenAI has it

_log = structlog.get_logger(__name__)


async def upload_file(http: web.Request) -> web.Response:
    """Take a file; it is as long as the cluster allows, and not held here."""
    options = http.app[CONTEXT].config.batches
    tenant, most = http[CLIENT].tenant, options.max_file_bytes + FORM_BYTES
    if http.content_type != "multipart/form-data":
        raise errors.unsupported_body("content type", http.content_type, "multipart/form-data")
    if encodings.encoding_of(http):
        raise errors.unsupported_body("content encoding", http.headers["Content-Encoding"], "none")
    if (http.content_length or 0) > most:
        raise errors.file_too_large(options.max_file_bytes)
    form = _Form(http, most)
    with http.app[TRANSFERS].one(tenant):
        try:
            async with asyncio.timeout(read_timeout_s(http.content_length or most)):
                stored = await http.app[BATCHES].take_file(tenant, http.headers["Content-Type"], form.pieces())
        except TimeoutError as error:
            raise errors.ApiError(408, "the body did not arrive in time", code="request_timeout") from error
        except errors.ApiError as error:
            if form.is_too_large:
                raise errors.file_too_large(options.max_file_bytes) from error
            raise
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
    tenant, write_s = http[CLIENT].tenant, http.app[CONNECTIONS].timeouts.write_s
    with http.app[TRANSFERS].one(tenant):
        async with http.app[BATCHES].content(tenant, http.match_info["file"]) as found:
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            response.content_length = found.content_length
            await response.prepare(http)
            try:
                async for piece in found.content.iter_chunked(PIECE_BYTES):
                    async with asyncio.timeout(write_s):
                        await response.write(piece)
                await response.write_eof()
            except (aiohttp.ClientError, TimeoutError) as error:  # half of a file must not look like one
                _log.warning("download_cut", request_id=http[REQUEST_ID], problem=str(error) or type(error).__name__)
                give_up(http)
    return response


class _Form:
    """A body that is passed on as it comes, up to a bound."""

    def __init__(self, http: web.Request, most: int) -> None:
        self._http = http
        self._most = most
        self.is_too_large = False

    async def pieces(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for piece in self._http.content.iter_chunked(PIECE_BYTES):
            num_bytes += len(piece)
            if num_bytes > self._most:
                self.is_too_large = True
                raise ValueError("the body is too large")
            yield piece
