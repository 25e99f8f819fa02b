"""Where gateways ask the service: files in and out, batches made, shown and cancelled. In MessagePack, over HTTP.

Every call has the secret of both (`TOKEN_HEADER`), the tenant and the interface; what belongs to another tenant, or was
made by another interface, is not there.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from services.batches.intake.inline_requests import InlineRequests, read_requests
from services.batches.intake.upload import read_form
from services.batches.keeping import remove_batch
from services.batches.records import transitions
from services.batches.refused import RefusedError, no_batch, no_file, no_storage, no_such_place
from services.batches.sending.runner import BatchRunner
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from services.batches.store.folder import BatchFolder, sync_file
from services.batches.store.ids import new_id
from shared.config.services.batches import BatchOptions
from shared.messages.batches.batches import (
    INTERFACE_HEADER,
    KEY_HEADER,
    MESSAGES_ENDPOINT,
    MESSAGES_WINDOW,
    MESSAGES_WINDOW_S,
    TENANT_HEADER,
    TOKEN_HEADER,
    BatchInterface,
    BatchRecord,
    FilePurpose,
    NewBatch,
    StoredFile,
)

MAX_OPEN_BATCHES = 64  # of a tenant, at a time
MAX_BODY_BYTES = 64 << 10  # of what asks for a batch: metadata is bounded by the gateway

_log = structlog.get_logger()
_new_batch = msgspec.msgpack.Decoder(NewBatch)


class BatchDoor:
    """The routes, and what they do."""

    def __init__(
        self,
        options: BatchOptions,
        max_line_bytes: int,
        folder: BatchFolder,
        files: FileStore,
        batches: BatchStore,
        runner: BatchRunner,
        token: str,
        clock: Callable[[], float],
    ) -> None:
        """``max_line_bytes``: of a request in a file, as gateways take it."""
        self._options = options
        self._max_line_bytes = max_line_bytes
        self._folder = folder
        self._files = files
        self._batches = batches
        self._runner = runner
        self._token = token.encode()
        self._clock = clock
        self._coming: Counter[str] = Counter()  # bytes that uploads may still bring, by tenant

    def app(self) -> web.Application:
        """An application with the routes."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._guard])
        app.add_routes(
            [
                web.post("/files", self._take_file),
                web.get("/files", self._list_files),
                web.get("/files/{file}", self._show_file),
                web.get("/files/{file}/content", self._give_file),
                web.delete("/files/{file}", self._remove_file),
                web.post("/batches", self._make_batch),
                web.post("/batches/requests", self._make_batch_of_requests),
                web.get("/batches", self._list_batches),
                web.get("/batches/{batch}", self._show_batch),
                web.delete("/batches/{batch}", self._remove_batch),
                web.post("/batches/{batch}/cancel", self._cancel_batch),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith(("/files", "/batches")):
            return await handler(request)  # health and metrics
        try:
            given = request.headers.get(TOKEN_HEADER, "").encode(errors="surrogateescape")
            if not hmac.compare_digest(given, self._token):
                raise RefusedError(403, "wrong_token", "the gateway does not know the service's secret")
            return await handler(request)
        except RefusedError as error:
            refused = error
        except OSError as error:
            _log.error("disk_failed", path=request.path, problem=str(error))
            refused = no_storage()
        return _packed(refused.refusal, refused.status)

    # --- files ----------------------------------------------------------------------------------------------------

    async def _take_file(self, request: web.Request) -> web.Response:
        tenant, interface = _asked_by(request)
        with self._room(tenant) as (path, most):
            form = await read_form(request, path, most)
            now = int(self._clock())
            record = StoredFile(
                id=path.name,
                tenant=tenant,
                filename=form.filename,
                purpose=form.purpose,
                num_bytes=form.num_bytes,
                created_s=now,
                expires_s=None if form.keep_s is None else now + form.keep_s,
                interface=interface,
            )
            await asyncio.to_thread(sync_file, path)
            self._files.add(record, path)
        return _packed(record)

    @contextmanager
    def _room(self, tenant: str) -> Iterator[tuple[Path, int]]:
        """Where a file can lie until it is stored, by its name to be, and how many bytes it may have."""
        left = self._options.max_tenant_bytes - self._files.num_bytes(tenant) - self._coming[tenant]
        if left <= 0 or self._files.is_full(tenant):
            raise RefusedError(
                403, "storage_limit_exceeded", "this tenant's files take all the room that they may: delete some"
            )
        most = min(self._options.max_file_bytes, left)
        path = self._folder.uploads / new_id("file-", self._clock())
        self._coming[tenant] += most
        try:
            yield path, most
        finally:
            path.unlink(missing_ok=True)
            self._coming[tenant] -= most

    async def _list_files(self, request: web.Request) -> web.Response:
        query = request.query
        purpose: FilePurpose | None = msgspec.convert(query["purpose"], FilePurpose) if "purpose" in query else None
        page = self._files.page(
            *_asked_by(request),
            after=query.get("after"),
            limit=int(query["limit"]),
            newest_first=query.get("order") != "asc",
            purpose=purpose,
        )
        if page is None:
            raise no_such_place(query)
        return _packed(page)

    async def _show_file(self, request: web.Request) -> web.Response:
        return _packed(self._file(request))

    async def _give_file(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(self._files.path(self._file(request).id))

    async def _remove_file(self, request: web.Request) -> web.Response:
        record = self._file(request)
        if any(one.asked.input_file_id == record.id and not one.has_ended for one in self._batches.all()):
            raise RefusedError(409, "file_in_use", "a batch that has not ended reads this file; cancel it first")
        self._files.remove(record.id)
        return _packed(record)

    # --- batches --------------------------------------------------------------------------------------------------

    async def _make_batch(self, request: web.Request) -> web.Response:
        tenant, interface = _asked_by(request)
        asked = _new_batch.decode(await request.read())
        file = self._files.get(asked.input_file_id)
        if file is None or (file.tenant, file.interface) != (tenant, interface):
            raise RefusedError(400, "file_not_found", f"there is no file {asked.input_file_id[:64]!r}", "input_file_id")
        if file.purpose != "batch":
            raise RefusedError(400, "invalid_value", "the file's purpose is not 'batch'", "input_file_id")
        self._check_number(tenant)
        now = self._clock()
        record = transitions.created(new_id("batch_", now), tenant, asked, now, interface=interface)
        self._batches.save(record)
        self._runner.begin(record)
        return _packed(record)

    async def _make_batch_of_requests(self, request: web.Request) -> web.Response:
        """One whose requests come with it: they become its input file, which goes with it."""
        tenant, interface = _asked_by(request)
        self._check_number(tenant)
        requests = InlineRequests(self._options.max_requests, self._max_line_bytes)
        with self._room(tenant) as (path, most):
            num_bytes = await read_requests(request.content, path, requests, most)
            await asyncio.to_thread(sync_file, path)
            self._check_number(tenant)  # others may have come meanwhile
            now = self._clock()
            asked = NewBatch(
                key_id=request.headers[KEY_HEADER],
                endpoint=MESSAGES_ENDPOINT,
                input_file_id=path.name,
                window=MESSAGES_WINDOW,
                window_s=MESSAGES_WINDOW_S,
            )
            batch = new_id("msgbatch_", now)
            record = transitions.created(batch, tenant, asked, now, interface=interface, num_requests=len(requests))
            file = StoredFile(
                id=path.name,
                tenant=tenant,
                filename=f"{batch}_input.jsonl",
                purpose="batch",
                num_bytes=num_bytes,
                created_s=record.created_s,
                expires_s=record.expires_s,  # where a crash leaves it without its batch
                interface=interface,
            )
            self._files.add(file, path)
        try:
            self._batches.save(record)
        except OSError:
            self._files.remove(file.id)
            raise
        self._runner.begin(record)
        return _packed(record)

    def _check_number(self, tenant: str) -> None:
        if self._batches.num_open(tenant) >= MAX_OPEN_BATCHES:
            raise RefusedError(
                429, "too_many_batches", f"this tenant has {MAX_OPEN_BATCHES} batches that have not ended"
            )

    async def _list_batches(self, request: web.Request) -> web.Response:
        query = request.query
        page = self._batches.page(
            *_asked_by(request), after=query.get("after"), before=query.get("before"), limit=int(query["limit"])
        )
        if page is None:
            raise no_such_place(query)
        shown = [self._runner.as_it_stands(one) for one in page.batches]
        return _packed(msgspec.structs.replace(page, batches=shown))

    async def _show_batch(self, request: web.Request) -> web.Response:
        return _packed(self._runner.as_it_stands(self._batch(request)))

    async def _cancel_batch(self, request: web.Request) -> web.Response:
        record = self._batch(request)
        if record.has_ended or record.finalizing_s is not None:
            raise RefusedError(409, "batch_has_ended", f"the batch is {record.status}, and cannot be cancelled")
        return _packed(record if record.cancelling_s is not None else self._runner.cancel(record))

    async def _remove_batch(self, request: web.Request) -> web.Response:
        record = self._batch(request)
        if not record.has_ended:
            raise RefusedError(409, "batch_not_ended", "the batch has not ended; cancel it, and wait for its end")
        remove_batch(self._files, self._batches, record)
        return _packed(record)

    def _file(self, request: web.Request) -> StoredFile:
        record = self._files.get(request.match_info["file"])
        if record is None or (record.tenant, record.interface) != _asked_by(request):
            raise no_file(request.match_info["file"])
        return record

    def _batch(self, request: web.Request) -> BatchRecord:
        record = self._batches.get(request.match_info["batch"])
        if record is None or (record.tenant, record.interface) != _asked_by(request):
            raise no_batch(request.match_info["batch"])
        return record


def _asked_by(request: web.Request) -> tuple[str, BatchInterface]:
    """Whose files and batches are meant. Gateways of an earlier version name no interface, and have one."""
    interface = request.headers.get(INTERFACE_HEADER, "openai")
    return request.headers[TENANT_HEADER], msgspec.convert(interface, BatchInterface)


def _packed(record: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.msgpack.encode(record), content_type="application/msgpack")
